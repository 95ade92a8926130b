"""What other systems wrote, read and brought into a home."""
