"""dnspython, hypercorn and urllib3-future on `ringloop.quic`, by an import shim."""
