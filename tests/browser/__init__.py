"""Tests with a real browser: headless Chromium, driven over its DevTools protocol (`make browser`)."""
