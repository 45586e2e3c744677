//! What errors and panics say, on one line, for people.
//!
//! An error is the application's: its text may be without end, its sources may go round in a circle,
//! and what writes them may panic. None of that may cost more than a text, since whoever asks for it
//! is about to put a message aside, and would otherwise fail of the same message again and again.

use std::any::Any;
use std::error::Error;
use std::fmt::{self, Display, Write};
use std::iter;

use super::panic::guard;

/// Longest text of an error with its sources, in bytes. A dead letter keeps all of it.
pub(crate) const ERROR_BYTES_MAX: usize = 64 * 1024;
/// Most sources of an error that are followed.
const SOURCES_MAX: usize = 64;

/// An error with its sources, on one line. Never panics: what an error's own code panics with
/// stands in its place. Cut at 64 KiB between two characters, and after 64 sources.
pub(crate) fn error_chain(error: &(dyn Error + 'static)) -> String {
    let mut text = Text::default();
    text.add(error);
    for source in chain(error).skip(1) {
        let mut part = Text::default();
        part.add(source);
        if !text.0.ends_with(&part.0) {
            // Full: what does not fit is left out.
            let _ = text.write_str(": ").and_then(|()| text.write_str(&part.0));
        }
    }
    text.0
}

/// An error and its sources, 64 of them at most: a chain of foreign errors may have no end.
pub(crate) fn chain<'e>(
    error: &'e (dyn Error + 'static),
) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    let source = |error: &&'e (dyn Error + 'static)| {
        let error = *error;
        guard(|| error.source()).unwrap_or(None)
    };
    iter::successors(Some(error), source).take(1 + SOURCES_MAX)
}

/// What a panic was given.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a value that is no text".to_owned())
}

/// A text of at most so many bytes, cut between two characters.
pub(crate) fn cut(mut text: String, bytes_max: usize) -> String {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

/// A text that takes no more than it may have.
#[derive(Default)]
struct Text(String);

impl Text {
    fn add(&mut self, error: &dyn Display) {
        let written = guard(|| write!(self, "{error}"));
        // An error of the formatter's: the text is full, or the error's own doing; what is there
        // stays.
        if let Err(panic) = written {
            tracing::warn!(%panic, backtrace = panic.backtrace, "an error's text panicked");
            let _ = write!(self, "(an error whose text panicked: {})", panic.text);
        }
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut end = text.len().min(ERROR_BYTES_MAX - self.0.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.0.push_str(&text[..end]);
        match end == text.len() {
            true => Ok(()),
            false => Err(fmt::Error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Odd(fn(&mut fmt::Formatter<'_>) -> fmt::Result, Option<Box<Odd>>);

    impl Display for Odd {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            (self.0)(f)
        }
    }

    impl Error for Odd {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|source| source as _)
        }
    }

    #[derive(Debug)]
    struct Circle;

    impl Display for Circle {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("round ")
        }
    }

    impl Error for Circle {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&Circle)
        }
    }

    #[derive(Debug)]
    struct NoSource;

    impl Display for NoSource {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("who knows why")
        }
    }

    impl Error for NoSource {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            panic!("nobody")
        }
    }

    #[test]
    fn a_source_that_is_in_the_text_already_is_not_repeated() {
        let inner = Odd(|f| f.write_str("no route"), None);
        let middle = Odd(|f| f.write_str("send: no route"), Some(inner.into()));
        let outer = Odd(|f| f.write_str("pay"), Some(middle.into()));
        assert_eq!(error_chain(&outer), "pay: send: no route");
    }

    #[test]
    fn an_error_whose_code_panics_or_fails_has_a_text_all_the_same() {
        let inner = Odd(|_| panic!("mind the {}", "gap"), None);
        let outer = Odd(|f| f.write_str("pay"), Some(inner.into()));
        assert_eq!(
            error_chain(&outer),
            "pay: (an error whose text panicked: mind the gap)"
        );
        let half = Odd(|f| f.write_str("half").and(Err(fmt::Error)), None);
        assert_eq!(error_chain(&half), "half");
        assert_eq!(error_chain(&NoSource), "who knows why");
    }

    #[test]
    fn neither_a_long_text_nor_a_circle_of_sources_goes_on_for_ever() {
        let long = Odd(|f| (0..1_000_000).try_for_each(|_| f.write_str("é")), None);
        let text = error_chain(&long);
        assert!(text.len() <= ERROR_BYTES_MAX && text.chars().all(|c| c == 'é'));
        assert!(error_chain(&Circle).starts_with("round"));
        let mut deep = Odd(|f| f.write_str("x"), None);
        for _ in 0..1_000 {
            deep = Odd(
                |f| f.write_fmt(format_args!("{:.<2000}", "y")),
                Some(deep.into()),
            );
        }
        assert!(error_chain(&deep).len() <= ERROR_BYTES_MAX);
    }
}
