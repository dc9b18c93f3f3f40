//! Label and field selectors: parsing, with upstream's limits and error texts, and matching.
pub mod field;
pub mod label;

pub use field::FieldSelector;
pub use label::LabelSelector;
