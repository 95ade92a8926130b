"""Git, called so that it runs nothing but itself: no hook, no monitor, no filter."""
