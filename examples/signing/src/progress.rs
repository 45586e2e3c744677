//! What is shown while a run is under way: bars on a terminal, nothing elsewhere.

use std::io::{self, Write};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Three bars on standard error, one for each stage that a document goes through. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    bars: MultiProgress,
    signed: ProgressBar,
    notified: ProgressBar,
    mailed: ProgressBar,
    sent: ProgressBar,
}

/// How far a run has come, by the tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reached {
    pub(crate) signed: u64,
    pub(crate) notified: u64,
    pub(crate) mailed: u64,
    /// What else must happen before the end: copies enqueued, lines that came through, rows that
    /// left the outbox.
    pub(crate) rest: u64,
}

impl Progress {
    /// Bars that are not drawn yet.
    pub(crate) fn new() -> Self {
        let bars = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(10));
        let bar = |name: &'static str, colour: &str| {
            let template = format!(
                "  {{prefix:<9}} {{bar:44.{colour}/238}} {{human_pos:>9}} / {{human_len:<9}} \
                 {{msg}}"
            );
            let style =
                ProgressStyle::with_template(&template).expect("the template is well-formed");
            let bar = ProgressBar::new(0)
                .with_style(style.progress_chars("━╸━"))
                .with_prefix(name);
            bars.add(bar)
        };
        let (signed, notified, mailed) = (
            bar("signed", "cyan"),
            bar("notified", "blue"),
            bar("mailed", "magenta"),
        );
        let sent = bar("sent", "cyan");
        Self {
            bars,
            signed,
            notified,
            mailed,
            sent,
        }
    }

    /// Draws the bars from now on.
    pub(crate) fn begin(&self, documents: u64, reached: Reached) {
        for bar in [&self.signed, &self.notified, &self.mailed] {
            self.bars.remove(&self.sent);
            bar.set_length(documents);
            bar.reset();
        }
        self.show(reached);
    }

    /// Moves the bars.
    pub(crate) fn show(&self, reached: Reached) {
        self.signed.set_position(reached.signed);
        self.notified.set_position(reached.notified);
        self.mailed.set_position(reached.mailed);
        let elapsed = self.signed.elapsed();
        self.mailed
            .set_message(format!("{:.1} s", Duration::as_secs_f64(&elapsed)));
    }

    /// Draws the one bar of deliveries that are sent from now on.
    pub(crate) fn begin_sending(&self, deliveries: u64) {
        for bar in [&self.signed, &self.notified, &self.mailed] {
            self.bars.remove(bar);
        }
        self.sent.set_length(deliveries);
        self.sent.reset();
    }

    /// Moves it.
    pub(crate) fn show_sent(&self, deliveries: u64) {
        self.sent.set_position(deliveries);
    }

    /// Removes the bars.
    pub(crate) fn end(&self) {
        // A terminal that is gone does not matter any more.
        let _ = self.bars.clear();
    }

    /// Says what is only of interest to who looks on.
    pub(crate) fn note(&self, line: impl AsRef<str>) {
        if !self.bars.is_hidden() {
            self.say(line);
        }
    }

    /// Says something, above the bars if there are any; on standard error in any case.
    pub(crate) fn say(&self, line: impl AsRef<str>) {
        self.bars.suspend(|| eprintln!("  {}", line.as_ref()));
    }
}

impl Write for Progress {
    /// What is logged goes above the bars, too.
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.bars.suspend(|| io::stderr().write_all(text))?;
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
