//! weightlift.
