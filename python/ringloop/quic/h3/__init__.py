"""HTTP/3 without I/O, in the shape of `aioquic.h3`: `connection`, `events`, `exceptions`."""
