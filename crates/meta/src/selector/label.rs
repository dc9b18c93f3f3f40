//! placeholder
/// placeholder
#[derive(Clone, Debug, Default)] pub struct LabelSelector;
