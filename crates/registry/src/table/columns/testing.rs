//! How columns are tested: an object goes in, the cells of its row come out.

use jiff::Timestamp;
use meta::Value;
use serde_json::json;

use super::Column;

/// At the beginning of time an object has these cells.
#[track_caller]
pub(super) fn expect_cells(columns: &[Column], object: &Value, expected: &Value) {
    let cells: Vec<Value> = columns.iter().map(|it| (it.cell)(object, Timestamp::UNIX_EPOCH)).collect();
    assert_eq!(json!(cells), *expected);
}
