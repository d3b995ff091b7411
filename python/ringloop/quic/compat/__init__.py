"""Packages that programs of other QUIC libraries import instead, where those differ from aioquic."""
