use std::time::Duration;

use url::Url;

use super::RabbitMqOptions;
use crate::broker::{BrokerError, BrokerErrorKind};

const PORT: u16 = 5672;
const PORT_TLS: u16 = 5671;

/// Reads a URL as RabbitMQ's own clients do. The reasons of its errors quote neither user nor
/// password.
pub(super) fn parse(text: &str) -> Result<RabbitMqOptions, BrokerError> {
    options(text).map_err(|reason| {
        BrokerError::new("use the broker URL", BrokerErrorKind::Configuration).with_source(reason)
    })
}

fn options(text: &str) -> Result<RabbitMqOptions, String> {
    let url = Url::parse(text).map_err(|error| format!("it is no URL: {error}"))?;
    let tls = match url.scheme() {
        "amqp" => false,
        "amqps" => true,
        scheme => return Err(format!("its scheme is {scheme:?}, not amqp or amqps")),
    };
    if url.cannot_be_a_base() {
        return Err("nothing like //host/vhost follows its scheme".to_owned());
    }
    let host = match url.host_str() {
        None | Some("") => "localhost".to_owned(),
        Some(host) => decoded("host", host.trim_start_matches('[').trim_end_matches(']'))?,
    };
    let port = url.port().unwrap_or(if tls { PORT_TLS } else { PORT });
    let mut options = RabbitMqOptions::new(tls, host, port);
    if !url.username().is_empty() {
        options.username = decoded("user", url.username())?;
    }
    if let Some(password) = url.password() {
        options.password = decoded("password", password)?;
    }
    // A path of "/" is the virtual host with the empty name to the letter of the specification;
    // nobody means that one.
    if let Some(vhost) = url
        .path()
        .strip_prefix('/')
        .filter(|vhost| !vhost.is_empty())
    {
        options.vhost = decoded("virtual host", vhost)?;
    }
    for (name, value) in url.query_pairs() {
        match name.as_ref() {
            "heartbeat" => options.heartbeat = Duration::from_secs(number(&name, &value)?),
            "connection_timeout" => {
                options.connect_timeout = Duration::from_millis(number(&name, &value)?);
            }
            "cacertfile" => options.ca_file = Some(value.into_owned().into()),
            "frame_max" => {
                options.frame_bytes_max = number(&name, &value)?
                    .try_into()
                    .map_err(|_| "its parameter frame_max is too large".to_owned())?;
            }
            _ => {
                return Err(format!(
                    "its parameter {name:?} is unknown: there are heartbeat, connection_timeout, cacertfile, frame_max"
                ));
            }
        }
    }
    Ok(options)
}

fn number(name: &str, value: &str) -> Result<u64, String> {
    value
        .parse()
        .map_err(|_| format!("its parameter {name} is {value:?}, not a number"))
}

fn decoded(part: &str, text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let escape = (byte == b'%').then(|| after.get(..2)).flatten();
        match escape.and_then(|digits| std::str::from_utf8(digits).ok()) {
            Some(digits) => {
                let value = u8::from_str_radix(digits, 16)
                    .map_err(|_| format!("its {part} holds a broken % escape"))?;
                bytes.push(value);
                rest = &after[2..];
            }
            None => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).map_err(|_| format!("its {part} is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn all_parts_of_a_url_are_read() {
        let options = options(
            "amqps://us%40er:p%3Ass@rabbit.example:1234/a%2fb?heartbeat=3&connection_timeout=1500&cacertfile=%2Fca.pem",
        )
        .unwrap();
        assert!(options.tls);
        assert_eq!(options.nodes, [("rabbit.example".to_owned(), 1234)]);
        assert_eq!(
            (options.username.as_str(), options.password.as_str()),
            ("us@er", "p:ss")
        );
        assert_eq!(options.vhost, "a/b");
        assert_eq!(options.heartbeat, Duration::from_secs(3));
        assert_eq!(options.connect_timeout, Duration::from_millis(1500));
        assert_eq!(options.ca_file.unwrap().to_str(), Some("/ca.pem"));
    }

    #[test]
    fn what_a_url_does_not_say_has_the_usual_defaults() {
        for text in [
            "amqp://localhost",
            "amqp://localhost/",
            "amqp://localhost/%2f",
        ] {
            let options = options(text).unwrap();
            assert_eq!(options.nodes, [("localhost".to_owned(), 5672)], "{text}");
            assert_eq!(options.vhost, "/", "{text}");
            assert_eq!(options.username, "guest");
        }
        assert_eq!(
            options("amqps://[::1]").unwrap().nodes,
            [("::1".to_owned(), 5671)]
        );
        assert_eq!(
            options("amqp://10.0.0.1:7").unwrap().nodes,
            [("10.0.0.1".to_owned(), 7)]
        );
    }

    #[test]
    fn no_error_and_no_debug_output_shows_a_credential() {
        for text in [
            "http://us3r:s3cret@host/",
            "amqp://us3r:s3cret@host:port/",
            "amqp://us3r:s3cret@host/?unknown=1",
            "amqp://us3r:s3cret%zz@host/",
            "amqp://us3r:s3cret@host/?heartbeat=x",
        ] {
            let error = parse(text).unwrap_err();
            let shown = format!("{error} {error:?} {}", error.source().unwrap());
            assert!(
                !shown.contains("s3cret") && !shown.contains("us3r"),
                "{shown}"
            );
        }
        let options = parse("amqp://us3r:s3cret@host/").unwrap();
        assert!(!format!("{options:?} {}", options.address()).contains("s3cret"));
    }
}
