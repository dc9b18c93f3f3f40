//! convoy
fn main() {}
