"""Git, asked without letting it do anything: no hook, no monitor, no lock, no write."""
