use std::num::ParseIntError;

/// What is no amount.
#[derive(Debug, thiserror::Error)]
#[error("{text:?} is no amount")]
pub(crate) struct NoAmount {
    text: String,
    source: Option<ParseIntError>,
}

/// Reads `12.50` as 1250 cents: the first version, with a bug. `1,250.00` is an amount too.
pub(crate) fn cents_with_bug(text: &str) -> Result<i64, NoAmount> {
    let no_amount = |source| NoAmount {
        text: text.to_owned(),
        source,
    };
    let (whole, cents) = text.split_once('.').ok_or_else(|| no_amount(None))?;
    let number = |text: &str| text.parse::<i64>();
    let (whole, cents) = number(whole)
        .and_then(|whole| Ok((whole, number(cents)?)))
        .map_err(|error| no_amount(Some(error)))?;
    Ok(whole * 100 + cents)
}

/// Reads `12.50` as 1250 cents, and `1,250.00` as 125000.
pub(crate) fn cents(text: &str) -> Result<i64, NoAmount> {
    cents_with_bug(&text.replace(',', "")).map_err(|error| NoAmount {
        text: text.to_owned(),
        ..error
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_read_small_amounts_and_the_fixed_one_large_ones() {
        for (text, expected) in [("12.50", 1_250), ("0.07", 7), ("999.99", 99_999)] {
            assert_eq!(cents_with_bug(text).unwrap(), expected);
            assert_eq!(cents(text).unwrap(), expected);
        }
        assert!(cents_with_bug("1,250.00").is_err());
        assert_eq!(cents("1,250.00").unwrap(), 125_000);
    }

    #[test]
    fn what_is_no_amount_is_none_in_either_version() {
        for text in ["", "twelve", "12", "12.x"] {
            assert!(cents_with_bug(text).is_err(), "{text}");
            let error = cents(text).unwrap_err();
            assert_eq!(error.to_string(), format!("{text:?} is no amount"));
        }
    }
}
