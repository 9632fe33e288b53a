"""Checks of arguments, files, and the rewriting of traced programs. Nothing here is public."""
