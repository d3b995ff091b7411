"""A pytest plugin: what tornado's own test runner does to its log before the tests count its lines."""

import logging

logging.getLogger("tornado.access").setLevel(logging.CRITICAL)
