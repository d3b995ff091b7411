"""What the blocks of the documentation use is no test of this folder."""

collect_ignore = ["files"]
