//! Fixtures and conformance suites for the tests of weightlift.
