"""What the store costs, measured against the raw limits of the same machine in the same run."""
