//! store-embedded
