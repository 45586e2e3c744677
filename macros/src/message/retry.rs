//! What a message type sets of the retry policy for itself: `retry(…)`, `deadline` and
//! `after_dead_letter`.

use std::time::Duration;

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::ParseStream;
use syn::{LitInt, LitStr};

use super::ast;
use crate::attribute::{Known, number, read_list};
use crate::did_you_mean::did_you_mean;
use crate::mistakes::Mistakes;
use crate::names::{attempts_of, deadline_of, delay_of, immediate_of};

/// What stands in `retry(…)`.
const KNOWN: &[Known] = &[
    Known {
        name: "attempts",
        form: "attempts = 5",
    },
    Known {
        name: "immediate",
        form: "immediate = 1",
    },
    Known {
        name: "base",
        form: r#"base = "1s""#,
    },
    Known {
        name: "cap",
        form: r#"cap = "5m""#,
    },
];

/// `retry(…)` as it was written.
#[derive(Default)]
pub(super) struct Retry {
    attempts: Option<LitInt>,
    immediate: Option<LitInt>,
    base: Option<LitStr>,
    cap: Option<LitStr>,
}

impl Retry {
    pub(super) fn read(
        &mut self,
        input: ParseStream<'_>,
        mistakes: &mut Mistakes,
    ) -> syn::Result<()> {
        read_list(input, KNOWN, mistakes, |name, input, _| {
            match name {
                "attempts" => self.attempts = Some(number(input)?),
                "immediate" => self.immediate = Some(number(input)?),
                "base" => self.base = Some(input.parse()?),
                _ => self.cap = Some(input.parse()?),
            }
            Ok(())
        })
    }
}

/// The parts of a policy that keep every rule that can be checked without the rest.
#[derive(Default)]
pub(super) struct Override {
    attempts: Option<u32>,
    immediate: Option<u32>,
    base: Option<Duration>,
    cap: Option<Duration>,
    deadline: Option<Duration>,
    parked: Option<bool>,
}

impl Override {
    pub(super) fn check(ast: &ast::Message<'_>, mistakes: &mut Mistakes) -> Self {
        let Retry {
            attempts,
            immediate,
            base,
            cap,
        } = &ast.attributes.retry;
        let parts = Self {
            attempts: number_part(attempts, attempts_of, mistakes),
            immediate: number_part(immediate, immediate_of, mistakes),
            base: text_part(base, |text| delay_of("base", text), mistakes),
            cap: text_part(cap, |text| delay_of("cap", text), mistakes),
            deadline: text_part(&ast.attributes.deadline, deadline_of, mistakes),
            parked: after_dead_letter(ast, mistakes),
        };
        if let (Some(tries), Some(all), Some(token)) = (parts.immediate, parts.attempts, immediate)
            && tries >= all
        {
            mistakes.at(
                token.span(),
                format!(
                    "immediate {tries}: it is less than `attempts`, {all}, since the first try \
                     counts"
                ),
            );
        }
        if let (Some(least), Some(most), Some(token)) = (parts.base, parts.cap, base)
            && least > most
        {
            mistakes.at(
                token.span(),
                format!("base {least:?}: it is not longer than `cap`, {most:?}"),
            );
        }
        parts
    }

    /// The constant of the implementation; nothing if no part was written.
    pub(super) fn expand(&self) -> TokenStream {
        let duration = |duration: &Duration| {
            let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
            quote!(::core::time::Duration::from_millis(#millis))
        };
        let parts = [
            self.attempts.map(|tries| quote!(.attempts_max(#tries))),
            self.immediate.map(|tries| quote!(.immediate(#tries))),
            self.base
                .as_ref()
                .map(duration)
                .map(|it| quote!(.base(#it))),
            self.cap.as_ref().map(duration).map(|it| quote!(.cap(#it))),
            self.deadline
                .as_ref()
                .map(duration)
                .map(|it| quote!(.deadline(#it))),
            self.parked.map(|parked| {
                let then = if parked {
                    quote!(Parked)
                } else {
                    quote!(Continues)
                };
                quote!(.after_dead_letter(::posta::retry::AfterDeadLetter::#then))
            }),
        ];
        if parts.iter().all(Option::is_none) {
            return TokenStream::new();
        }
        let parts = parts.iter().flatten();
        quote! {
            const RETRY: ::posta::retry::RetryOverride =
                ::posta::retry::RetryOverride::NONE #(#parts)*;
        }
    }
}

fn number_part(
    literal: &Option<LitInt>,
    of: impl Fn(&str) -> Result<u32, String>,
    mistakes: &mut Mistakes,
) -> Option<u32> {
    let literal = literal.as_ref()?;
    of(literal.base10_digits())
        .map_err(|mistake| mistakes.at(literal.span(), mistake))
        .ok()
}

fn text_part(
    literal: &Option<LitStr>,
    of: impl Fn(&str) -> Result<Duration, String>,
    mistakes: &mut Mistakes,
) -> Option<Duration> {
    let literal = literal.as_ref()?;
    of(&literal.value())
        .map_err(|mistake| mistakes.at(literal.span(), mistake))
        .ok()
}

fn after_dead_letter(ast: &ast::Message<'_>, mistakes: &mut Mistakes) -> Option<bool> {
    const WORDS: [&str; 2] = ["parked", "continues"];
    let literal = ast.attributes.after_dead_letter.as_ref()?;
    let word = literal.value();
    if !WORDS.contains(&word.as_str()) {
        let hint = did_you_mean(&word, &WORDS.map(str::to_owned), "it is one of");
        mistakes.at(
            literal.span(),
            format!("`{word}` is nothing that a key can do after a dead letter; {hint}"),
        );
        return None;
    }
    let parked = word == "parked";
    if parked && ast.attributes.written.lacks("key") {
        mistakes.at(
            literal.span(),
            "a message without a key has nothing to park: add its `key`, or leave this out",
        );
    }
    Some(parked)
}
