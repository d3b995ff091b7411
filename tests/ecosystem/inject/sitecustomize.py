"""Runs in every interpreter that a suite starts, before the suite."""

import loop_under_test

loop_under_test.put_in_place()
