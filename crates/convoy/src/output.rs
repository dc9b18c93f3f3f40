//! How commands show what they found: a table for people, a document for programs.

/// How a document is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// One object.
    Json,
    /// The same as YAML.
    Yaml,
}

impl Output {
    /// Something else as this output shows it; `None` for tables, which everybody draws themselves.
    pub fn document(self, document: &serde_json::Value) -> Option<String> {
        match self {
            Self::Table => None,
            Self::Json => Some(format!("{document:#}\n")),
            Self::Yaml => Some(schema::yaml::to_text(document)),
        }
    }
}

/// Columns as kubectl pads them.
pub fn padded<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let width = |n: usize| rows.iter().map(|it| it[n].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("   ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// `12,431`
pub fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_easy_to_read() {
        for (n, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(thousands(n), text);
        }
    }
}
