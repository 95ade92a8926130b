"""Process trees: started, fed, watched, limited, and ended without survivors.

`proc.tree` runs a command, `proc.survivors` finds and ends what a crash of ours left behind.
Nothing is imported here: the keeper starts with every command and pays for each import.
"""
