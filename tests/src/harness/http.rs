//! An HTTP client for RabbitMQ's management API: one request, one connection, blocking, bounded.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

const TIMEOUT: Duration = Duration::from_secs(60);

/// Sends a request and gives back status and body. HTTP 1.0, so that the body comes in one piece
/// and ends with the connection.
///
/// # Errors
/// When there is nobody to answer, or the answer breaks off.
pub(crate) fn request(
    address: &str,
    authorization: &str,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> io::Result<(u16, Value)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let body = body.map(Value::to_string).unwrap_or_default();
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nauthorization: Basic {authorization}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8(answer).expect("the answer is text");
    let broken_off = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(broken_off)?;
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let body = serde_json::from_str(body).unwrap_or(Value::Null);
    Ok((status.ok_or_else(broken_off)?, body))
}

/// Base64 with padding, for the basic authorization.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let mut group = [0; 3];
        group[..chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        for digit in 0..4 {
            match digit <= chunk.len() {
                true => text.push(DIGITS[(bits >> (18 - 6 * digit)) as usize & 63] as char),
                false => text.push('='),
            }
        }
    }
    text
}

#[test]
fn base64_has_padding() {
    assert_eq!(base64(b"posta:ab"), "cG9zdGE6YWI=");
    assert_eq!(base64(b"posta"), "cG9zdGE=");
    assert_eq!(base64(b"pos"), "cG9z");
}
