"""What the command `holdfast` and `python -m holdfast` run.

Imports stand inside the block, so that Ctrl-C during any of them ends the program quietly.
"""


def main() -> int:
    try:
        from holdfast.cli.main import main as command_line  # noqa: PLC0415

        return command_line()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
