"""A pytest plugin: sets up logging like tornado's own test runner, whose tests count log lines."""

import logging

logging.getLogger("tornado.access").setLevel(logging.CRITICAL)
