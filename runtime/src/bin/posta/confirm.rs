use std::io::{BufRead as _, IsTerminal as _};

use crate::exit::Failed;
use crate::flags::Deed;
use crate::interrupt::apart;
use crate::{say, tell};

/// Shows what a change would do, and asks whether to do it.
///
/// `--dry-run` never does it (`Ok(false)`), `--yes` does; in a terminal a person is asked; anything
/// else is not confirmed. With `--json` the dry run is shown only where nothing else will be.
pub(crate) async fn confirmed(deed: &Deed, json: bool, dry_run: &str) -> Result<bool, Failed> {
    let asks = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if !json || !deed.yes {
        say(dry_run.as_bytes())?;
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
    tell("Go on? [y/N] ");
    let answer = apart("ask", || {
        let mut answer = Vec::new();
        std::io::stdin().lock().read_until(b'\n', &mut answer)?;
        Ok(answer)
    });
    let answer = answer.await?;
    match answer.trim_ascii().to_ascii_lowercase().as_slice() {
        b"y" | b"yes" => Ok(true),
        _ => Err(Failed::NotConfirmed),
    }
}
