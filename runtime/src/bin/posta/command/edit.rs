use std::io::{IsTerminal as _, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use posta::message::limits::PAYLOAD_BYTES_MAX;
use posta::operations::Operator;
use posta::operations::operator::{Decodes, Edit, Edited};
use posta::store::{Database, LetterId};
use serde_json::{Value, json};

use crate::confirm::confirmed;
use crate::exit::Failed;
use crate::flags::EditFlags;
use crate::interrupt::apart;
use crate::print::payload::reflowed;
use crate::print::text::printable;
use crate::print::{diff, json};

/// Gives a letter's message another payload.
pub(crate) async fn edit<D: Database>(
    operator: &Operator<D>,
    flags: &EditFlags,
    as_json: bool,
) -> Result<String, Failed> {
    let letter = LetterId(flags.letter);
    let shown = operator.show(letter, 0).await?;
    let before = &shown.letter.message.payload;
    let payload = match &flags.payload_file {
        Some(file) => {
            let file = file.clone();
            apart("read the payload", move || read(&file)).await?
        }
        // The letter's version or content type alone.
        None if flags.schema_version.is_some() || flags.content_type.is_some() => before.to_vec(),
        None if std::io::stdin().is_terminal() => edited_by_hand(letter, before)?,
        None => {
            let problem = "give --payload-file FILE, or - for standard input";
            return Err(Failed::Usage(problem.to_owned()));
        }
    };
    let edit = Edit {
        payload: payload.into(),
        version: flags.schema_version,
        content_type: flags.content_type.clone(),
        base: Some(shown.letter.revision),
    };
    let preview = operator.preview_edit(letter, &edit).await?;
    let base = format!("letter {letter}, revision {}", shown.letter.revision);
    let next = format!("letter {letter}, revision {}", preview.revision);
    let difference = diff::diff(&preview.before, &preview.after, (&base, &next));
    let plan = match as_json {
        true => json::line(&json!({"dry_run": value_of(&preview, &difference)})),
        false => format!("{}\n{}", diff::shown(&difference), words_of(&preview)),
    };
    // Standard input may have been the payload: then nobody can be asked.
    if !confirmed(&flags.deed, as_json, &plan).await? {
        return Ok(String::new());
    }
    let edited = operator.edit(letter, &edit, &flags.deed.reason).await?;
    Ok(match as_json {
        true => {
            let mut value = value_of(&edited, &difference);
            value["action"] = "edit".into();
            json::line(&value)
        }
        false => format!(
            "letter {letter} has revision {}; it is still dead: posta dead-letters replay {letter}\n",
            edited.revision
        ),
    })
}

fn value_of(edited: &Edited, difference: &str) -> Value {
    let (decodes, why) = match &edited.decodes {
        Decodes::Yes => (Value::Bool(true), None),
        Decodes::No(why) => (Value::Bool(false), Some(why)),
        Decodes::Unknown => (Value::Null, None),
    };
    json!({
        "letter": edited.letter.0,
        "revision": edited.revision,
        "version": edited.version,
        "content_type": edited.content_type,
        "bytes_before": edited.before.len(),
        "bytes_after": edited.after.len(),
        "decodes": decodes,
        "decode_error": why,
        "diff": difference,
    })
}

fn words_of(edited: &Edited) -> String {
    let decodes = match &edited.decodes {
        Decodes::Yes => "it is well-formed".to_owned(),
        Decodes::No(why) => format!("beware: it does not decode: {}", printable(why)),
        Decodes::Unknown => "whether it decodes is not known here".to_owned(),
    };
    format!(
        "{} bytes, before {}; {decodes}\n",
        edited.after.len(),
        edited.before.len()
    )
}

/// Reads no further than it takes to know that there is too much.
fn read(file: &Path) -> std::io::Result<Vec<u8>> {
    let mut payload = Vec::new();
    let most = PAYLOAD_BYTES_MAX as u64 + 1;
    match file.as_os_str() == "-" {
        true => std::io::stdin().take(most).read_to_end(&mut payload)?,
        false => std::fs::File::open(file)?
            .take(most)
            .read_to_end(&mut payload)?,
    };
    Ok(payload)
}

/// Opens the payload in the user's editor, JSON with one value a line; the file is readable to its
/// owner alone, and removed afterwards.
fn edited_by_hand(letter: LetterId, payload: &[u8]) -> Result<Vec<u8>, Failed> {
    let text = std::str::from_utf8(payload).map_err(|_| {
        Failed::Usage("the payload is no text: give --payload-file FILE".to_owned())
    })?;
    let editor = ["VISUAL", "EDITOR"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|editor| !editor.is_empty()))
        .ok_or_else(|| {
            Failed::Usage("set VISUAL or EDITOR, or give --payload-file FILE".to_owned())
        })?;
    let name = format!("posta-letter-{letter}-{}.txt", std::process::id());
    let file = Opened {
        path: std::env::temp_dir().join(name),
    };
    let given = reflowed(text);
    file.write(given.as_bytes())
        .map_err(|error| Failed::Io("write a file for the editor", error))?;
    // As git and others do: the editor may be a command with arguments.
    let status = Command::new("sh")
        .args(["-c", &format!("{editor} \"$1\""), "sh"])
        .arg(&file.path)
        .status()
        .map_err(|error| Failed::Io("open the editor", error))?;
    if !status.success() {
        return Err(Failed::Other(format!("the editor failed: {status}")));
    }
    let mut edited =
        read(&file.path).map_err(|error| Failed::Io("read what the editor wrote", error))?;
    if !given.ends_with('\n') && edited.ends_with(b"\n") {
        // Most editors end the last line, asked or not.
        edited.pop();
    }
    if edited == given.as_bytes() {
        return Err(Failed::Unchanged);
    }
    Ok(edited)
}

/// A file that is removed when it is done with.
struct Opened {
    path: PathBuf,
}

impl Opened {
    fn write(&self, bytes: &[u8]) -> std::io::Result<()> {
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(&self.path)?.write_all(bytes)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // It may not have been made.
        let _ = std::fs::remove_file(&self.path);
    }
}
