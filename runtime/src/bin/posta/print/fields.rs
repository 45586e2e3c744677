use super::COLUMNS;
use super::text::{printable, wrap};

/// The width of the names before their values.
const NAME: usize = 14;
/// Lines of one value, at most.
const LINES_MAX: usize = 12;

/// Names and values, one below the other, long values wrapped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields {
    text: String,
}

impl Fields {
    /// Adds a field. What is longer than a dozen lines is cut; `--json` has it whole.
    pub(crate) fn add(&mut self, name: &str, value: impl AsRef<str>) -> &mut Self {
        let lines = wrap(&printable(value.as_ref()), COLUMNS - NAME - 2);
        let more = lines.len() > LINES_MAX;
        for (index, line) in lines.iter().take(LINES_MAX).enumerate() {
            let name = if index == 0 { name } else { "" };
            let end = if more && index == LINES_MAX - 1 {
                "…"
            } else {
                ""
            };
            let line = format!("{name:NAME$}{line}{end}");
            self.text.push_str(line.trim_end());
            self.text.push('\n');
        }
        self
    }

    /// Adds a field if it has a value.
    pub(crate) fn maybe(&mut self, name: &str, value: Option<impl AsRef<str>>) -> &mut Self {
        if let Some(value) = value {
            self.add(name, value);
        }
        self
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}
