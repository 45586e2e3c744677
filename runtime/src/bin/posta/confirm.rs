use std::io::{IsTerminal as _, Write as _};

use crate::exit::Failed;
use crate::flags::Deed;
use crate::say;

/// Shows what a change would do, and asks whether to do it.
///
/// `--dry-run` never does it (`Ok(false)`), `--yes` does; in a terminal a person is asked; anything
/// else is not confirmed. With `--json` the dry run is shown only where nothing else will be.
pub(crate) fn confirmed(deed: &Deed, json: bool, dry_run: &str) -> Result<bool, Failed> {
    let asks = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if !json || !deed.yes {
        say(dry_run)?;
    }
    if deed.dry_run {
        return Ok(false);
    }
    if deed.yes {
        return Ok(true);
    }
    if !asks {
        return Err(Failed::NotConfirmed);
    }
    eprint!("Go on? [y/N] ");
    let mut answer = String::new();
    std::io::stderr()
        .flush()
        .and_then(|()| std::io::stdin().read_line(&mut answer))
        .map_err(|error| Failed::Io("ask", error))?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(true),
        _ => Err(Failed::NotConfirmed),
    }
}
