/// What the compiler said, without what differs from one machine, or from one day, to the next:
/// where the workspace is, and the numbers of lines of files other than the mistake's own.
pub(super) fn of(said: &str) -> String {
    let said = said
        .replace("tests/ui/fail/", "ui/fail/")
        .replace("--> runtime/", "--> $WORKSPACE/runtime/")
        .replace("::: runtime/", "::: $WORKSPACE/runtime/");
    let mut words = String::new();
    let mut elsewhere = false;
    for line in said.lines() {
        if line.starts_with("error: aborting due to")
            || line.starts_with("For more information about")
            || line.starts_with("Some errors have detailed")
        {
            break;
        }
        let line = match line.find("--> ").or_else(|| line.find("::: ")) {
            Some(arrow) => {
                elsewhere = line[arrow + 4..].starts_with('$');
                match elsewhere {
                    true => without_position(line),
                    false => line,
                }
            }
            None => line,
        };
        words.push_str(&in_column(line, elsewhere));
        words.push('\n');
    }
    let words = words.trim_end();
    format!("{words}\n")
}

/// A place in a file, without line and column.
fn without_position(line: &str) -> &str {
    line.rsplitn(3, ':').last().unwrap_or(line)
}

/// A line with its bar, arrow or sign of equality where numbers of three digits would put it: by
/// itself the compiler makes room for the longest number. Without the number, if it is elsewhere.
fn in_column(line: &str, elsewhere: bool) -> String {
    let trimmed = line.trim_start();
    if trimmed.starts_with("--> ") || trimmed.starts_with("::: ") {
        return format!("   {trimmed}");
    }
    if trimmed.starts_with("= ") {
        return format!("    {trimmed}");
    }
    match trimmed.split_once('|') {
        Some((number, shown)) if number.trim().chars().all(|char| char.is_ascii_digit()) => {
            let number = if elsewhere { "" } else { number.trim() };
            format!("{number:>3} |{shown}")
        }
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn what_differs_between_machines_is_left_out_and_the_mistakes_own_lines_stay() {
        let said = "error: no\n --> tests/ui/fail/x.rs:12:4\n   |\n12 | that\n   | ^^^^\n\
                    note: required\n --> runtime/src/y.rs:77:5\n   |\n77 |     pub fn\n\
                    \nerror: aborting due to 1 previous error\n";
        let words = "error: no\n   --> ui/fail/x.rs:12:4\n    |\n 12 | that\n    | ^^^^\n\
                     note: required\n   --> $WORKSPACE/runtime/src/y.rs\n    |\n    |     pub fn\n";
        assert_eq!(of(said), words);
    }
}
