"""The program of a VPS: an SSH server that is the task itself, so that whatever it starts is in the task."""
