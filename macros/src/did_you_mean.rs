//! Suggestions for misspelt names.

use std::fmt::Write as _;

/// What a mistake says after the unknown name: the near one if there is one, else all that there
/// are.
///
/// `all_are` introduces the list, as in "its fields are".
pub(crate) fn did_you_mean(unknown: &str, known: &[String], all_are: &str) -> String {
    match nearest(unknown, known) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("{all_are} {}", listed(known)),
    }
}

/// Names in backticks: "`a`, `b` and `c`".
pub(crate) fn listed(names: &[String]) -> String {
    let mut text = String::new();
    for (index, name) in names.iter().enumerate() {
        let separator = match index {
            0 => "",
            _ if index + 1 == names.len() => " and ",
            _ => ", ",
        };
        // Writing to a String cannot fail.
        let _ = write!(text, "{separator}`{name}`");
    }
    text
}

/// The known name that is fewest edits away, if a third of its letters or fewer are wrong.
pub(crate) fn nearest<'a>(unknown: &str, known: &'a [String]) -> Option<&'a String> {
    let distance = |name: &String| strsim::damerau_levenshtein(unknown, name);
    let near = |name: &&String| distance(name) <= name.chars().count() / 3;
    known.iter().filter(near).min_by_key(|name| distance(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        ["type", "version", "key", "handler"]
            .map(str::to_owned)
            .to_vec()
    }

    #[test]
    fn a_near_name_is_suggested() {
        for (unknown, near) in [("keyy", "key"), ("typ", "type"), ("verison", "version")] {
            let words = did_you_mean(unknown, &names(), "there are");
            assert_eq!(words, format!("did you mean `{near}`?"));
        }
    }

    #[test]
    fn without_a_near_name_all_are_listed() {
        let words = did_you_mean("exchange", &names(), "there are");
        assert_eq!(words, "there are `type`, `version`, `key` and `handler`");
    }
}
