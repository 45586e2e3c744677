use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

/// How long a single attempt to reach a host may take, unless the URL says otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A peer that went away without a word is noticed after this time of silence plus three probes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_RETRIES: u32 = 3;
/// How long what was sent may stay unacknowledged before the connection counts as lost.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection URL, understood: what tokio-postgres needs to know, and how to encrypt.
///
/// As libpq's URLs, several hosts among them. `sslmode` has all of libpq's modes but `allow`;
/// tokio-postgres knows three.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// Host, port, user, database and all but TLS.
    pub(super) config: Config,
    /// `sslmode`.
    pub(super) mode: Mode,
    /// `sslrootcert`.
    pub(super) roots: Roots,
}

/// `sslmode`, as libpq means it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Never encrypt.
    Disable,
    /// Encrypt if the server can, without asking who it is; else do without.
    Prefer,
    /// Encrypt, without asking who it is.
    Require,
    /// Encrypt, and the server's certificate must come from a trusted authority.
    VerifyCa,
    /// The same, and the certificate must name the host.
    VerifyFull,
}

/// `sslrootcert`: whom to trust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Roots {
    /// The machine's own certificate store (`system`).
    System,
    /// The certificates in this PEM file.
    File(PathBuf),
}

/// What is wrong with a connection URL. Names the part and never quotes a value that could be a
/// secret.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum UrlError {
    #[error("a PostgreSQL URL begins with postgres:// or postgresql://")]
    Scheme,
    #[error("the URL names no host")]
    NoHost,
    #[error("sslmode is {0:?}: it must be one of disable, prefer, require, verify-ca, verify-full")]
    Mode(String),
    #[error("sslrootcert=system asks for sslmode=verify-full: any other mode would trust anybody")]
    SystemNeedsVerifyFull,
    #[error("sslmode=verify-ca needs sslrootcert, the file of the authority to trust")]
    VerifyCaNeedsRoots,
    #[error("the URL's parameter {0} is unknown or has a value that is not allowed")]
    Parameter(String),
    #[error("the URL is malformed; are special characters of the password percent-encoded?")]
    Malformed,
}

impl Target {
    /// Understands a URL.
    pub(super) fn parse(url: &str) -> Result<Self, UrlError> {
        let rest = ["postgres://", "postgresql://"]
            .iter()
            .find_map(|s| url.strip_prefix(s));
        let rest = rest.ok_or(UrlError::Scheme)?;
        // As tokio-postgres and libpq do it: credentials end at the first @, whatever is in them.
        let host = rest.find('@').map_or(0, |at| at + 1);
        let query = rest[host..].find('?').map_or(rest.len(), |at| host + at);
        let (address, query) = rest.split_at(query);

        let (mut mode, mut roots) = (None, None);
        let mut kept = Vec::new();
        for pair in query
            .trim_start_matches('?')
            .split('&')
            .filter(|pair| !pair.is_empty())
        {
            let (name, value) = pair.split_once('=').ok_or(UrlError::Malformed)?;
            match name {
                "sslmode" => mode = Some(Mode::parse(value)?),
                "sslrootcert" => roots = Some(Roots::parse(value)?),
                _ => kept.push((name, pair)),
            }
        }
        let pairs: Vec<&str> = kept.iter().map(|(_, pair)| *pair).collect();
        let plain = format!("postgres://{address}?{}", pairs.join("&"));
        let mut config: Config = plain.parse().map_err(|_| guilty(address, &kept))?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(UrlError::NoHost);
        }
        let (mode, roots) = resolve(mode, roots)?;
        complete(&mut config, mode);
        Ok(Self {
            config,
            mode,
            roots,
        })
    }
}

/// Which part tokio-postgres did not take: it is asked again about each parameter alone.
fn guilty(address: &str, parameters: &[(&str, &str)]) -> UrlError {
    let refused = |query: &str| {
        format!("postgres://{address}?{query}")
            .parse::<Config>()
            .is_err()
    };
    if refused("") {
        return UrlError::Malformed;
    }
    // What is no word, or has an @ behind it, may be the rest of a password with an unescaped @ and
    // ? in it.
    let secret = parameters.iter().any(|(_, pair)| pair.contains('@'));
    let plain = |name: &str| {
        name.bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    match parameters.iter().find(|(_, pair)| refused(pair)) {
        Some((name, _)) if plain(name) && !secret => UrlError::Parameter((*name).to_owned()),
        _ => UrlError::Malformed,
    }
}

/// What libpq makes of the two parameters together.
fn resolve(mode: Option<Mode>, roots: Option<Roots>) -> Result<(Mode, Roots), UrlError> {
    match (mode, roots) {
        (None | Some(Mode::VerifyFull), Some(Roots::System)) => {
            Ok((Mode::VerifyFull, Roots::System))
        }
        (Some(_), Some(Roots::System)) => Err(UrlError::SystemNeedsVerifyFull),
        // Kept by libpq for old programs: whoever names an authority wants it checked.
        (Some(Mode::Require), Some(roots)) => Ok((Mode::VerifyCa, roots)),
        (Some(Mode::VerifyCa), None) => Err(UrlError::VerifyCaNeedsRoots),
        (mode, roots) => Ok((mode.unwrap_or(Mode::Prefer), roots.unwrap_or(Roots::System))),
    }
}

/// Fills in what the URL leaves open.
fn complete(config: &mut Config, mode: Mode) {
    // As libpq: a Unix socket stays on the machine and is never encrypted.
    let local = config
        .get_hosts()
        .iter()
        .all(|host| !matches!(host, Host::Tcp(_)));
    config.ssl_mode(match mode {
        Mode::Disable => SslMode::Disable,
        _ if local && config.get_hostaddrs().is_empty() => SslMode::Disable,
        Mode::Prefer => SslMode::Prefer,
        Mode::Require | Mode::VerifyCa | Mode::VerifyFull => SslMode::Require,
    });
    if config.get_application_name().is_none() {
        config.application_name("posta");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_TIMEOUT);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(TCP_USER_TIMEOUT);
    }
    if config.get_keepalives_interval().is_none() {
        config.keepalives_idle(KEEPALIVE_IDLE);
        config.keepalives_interval(KEEPALIVE_INTERVAL);
        config.keepalives_retries(KEEPALIVE_RETRIES);
    }
    // With several hosts, or an address that moves at a failover: a standby is of no use.
    if config.get_target_session_attrs() == TargetSessionAttrs::Any {
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
}

impl Mode {
    fn parse(value: &str) -> Result<Self, UrlError> {
        match value {
            "disable" => Ok(Self::Disable),
            "prefer" => Ok(Self::Prefer),
            "require" => Ok(Self::Require),
            "verify-ca" => Ok(Self::VerifyCa),
            "verify-full" => Ok(Self::VerifyFull),
            other => Err(UrlError::Mode(other.chars().take(20).collect())),
        }
    }
}

impl Roots {
    fn parse(value: &str) -> Result<Self, UrlError> {
        if value == "system" {
            return Ok(Self::System);
        }
        let path = percent_decoded(value).ok_or(UrlError::Parameter("sslrootcert".to_owned()))?;
        Ok(Self::File(PathBuf::from(path)))
    }
}

/// A query value with its percent escapes undone. (`+` is itself: these are libpq's URLs, not a
/// form's.)
fn percent_decoded(value: &str) -> Option<String> {
    let pair = format!("v={}", value.replace('+', "%2B"));
    url::form_urlencoded::parse(pair.as_bytes())
        .next()
        .map(|(_, value)| value.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> Target {
        Target::parse(url).unwrap()
    }

    #[test]
    fn ssl_parameters_are_taken_out_and_the_rest_is_kept() {
        let target = parsed(
            "postgres://u:p%40ss@db.example:6543/app?sslmode=verify-full&connect_timeout=3&sslrootcert=/etc/a%20b+c.pem",
        );
        assert_eq!(target.mode, Mode::VerifyFull);
        assert_eq!(target.roots, Roots::File(PathBuf::from("/etc/a b+c.pem")));
        assert_eq!(target.config.get_password(), Some(&b"p@ss"[..]));
        assert_eq!(
            target.config.get_connect_timeout(),
            Some(&Duration::from_secs(3))
        );
        assert_eq!(target.config.get_application_name(), Some("posta"));
        assert_eq!(target.config.get_dbname(), Some("app"));
    }

    #[test]
    fn modes_and_roots_mean_what_libpq_means() {
        assert_eq!(parsed("postgres://h/d").mode, Mode::Prefer);
        assert_eq!(parsed("postgres://h/d?sslmode=require").mode, Mode::Require);
        assert_eq!(
            parsed("postgres://h/d?sslmode=require&sslrootcert=/ca").mode,
            Mode::VerifyCa
        );
        assert_eq!(
            parsed("postgres://h/d?sslrootcert=system").mode,
            Mode::VerifyFull
        );
        for (query, error) in [
            ("sslmode=verify-ca", UrlError::VerifyCaNeedsRoots),
            (
                "sslmode=require&sslrootcert=system",
                UrlError::SystemNeedsVerifyFull,
            ),
            ("sslmode=allow", UrlError::Mode("allow".to_owned())),
        ] {
            assert_eq!(
                Target::parse(&format!("postgres://h/d?{query}")).unwrap_err(),
                error
            );
        }
    }

    #[test]
    fn a_unix_socket_is_never_encrypted() {
        let target = parsed("postgres://u@/d?host=/run/postgresql&sslmode=require");
        assert_eq!(target.config.get_ssl_mode(), SslMode::Disable);
    }

    #[test]
    fn several_hosts_are_kept() {
        let target = parsed("postgresql://u@a:1,b:2/d");
        assert_eq!(target.config.get_ports(), [1, 2]);
        assert_eq!(
            target.config.get_target_session_attrs(),
            TargetSessionAttrs::ReadWrite
        );
    }

    #[test]
    fn an_error_names_the_part_and_never_the_password() {
        for (url, error) in [
            ("mysql://u:secret@h/d", UrlError::Scheme),
            ("postgres:///d", UrlError::NoHost),
            ("postgres://u:secret@h:port/d", UrlError::Malformed),
            (
                "postgres://u:secret@h/d?colour=red",
                UrlError::Parameter("colour".to_owned()),
            ),
            (
                "postgres://u:secret@h/d?connect_timeout=x&application_name=a",
                UrlError::Parameter("connect_timeout".to_owned()),
            ),
            ("postgres://u:a@b?secret=1@h/d", UrlError::Malformed),
            ("postgres://u:a@b?se!cret=1", UrlError::Malformed),
        ] {
            let found = Target::parse(url).unwrap_err();
            assert_eq!(found, error, "{url}");
        }
    }
}
