use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The secrets that GitHub may have signed with: the present one and, while it is being changed,
/// the one before.
#[derive(Clone)]
pub struct Secrets {
    keys: Vec<Hmac<Sha256>>,
}

/// A secret that is no secret.
#[derive(Debug, thiserror::Error)]
#[error("a webhook's secret is empty: everybody could sign with it")]
pub struct EmptySecret;

impl Secrets {
    /// Secrets, the present one first.
    ///
    /// # Errors
    /// When one of them is empty, or there is none.
    pub fn new<S: AsRef<[u8]>>(secrets: impl IntoIterator<Item = S>) -> Result<Self, EmptySecret> {
        let key = |secret: S| match secret.as_ref() {
            [] => Err(EmptySecret),
            secret => Hmac::new_from_slice(secret).map_err(|_| EmptySecret),
        };
        let keys: Vec<_> = secrets.into_iter().map(key).collect::<Result<_, _>>()?;
        if keys.is_empty() {
            Err(EmptySecret)
        } else {
            Ok(Self { keys })
        }
    }

    /// `X-Hub-Signature-256` of a body, by the present secret.
    #[must_use]
    pub fn sign(&self, body: &[u8]) -> String {
        let mut mac = self.keys[0].clone();
        mac.update(body);
        format!("sha256={}", hex::encode(mac.finalize().into_bytes()))
    }

    /// Whether `X-Hub-Signature-256` is a signature of the body by one of the secrets. Takes the
    /// same time wherever the signature is wrong, so that it cannot be guessed byte by byte.
    #[must_use]
    pub fn verify(&self, signature: &str, body: &[u8]) -> bool {
        let Some(digits) = signature.strip_prefix("sha256=") else {
            return false;
        };
        let Ok(tag) = hex::decode(digits) else {
            return false;
        };
        self.keys.iter().any(|key| {
            let mut mac = key.clone();
            mac.update(body);
            mac.verify_slice(&tag).is_ok()
        })
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.keys.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn github_s_own_example_is_verified() {
        let secrets = Secrets::new(["It's a Secret to Everybody"]).unwrap();
        let signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        assert_eq!(secrets.sign(b"Hello, World!"), signature);
        assert!(secrets.verify(signature, b"Hello, World!"));
        assert!(!secrets.verify(signature, b"Hello, World?"));
    }

    #[test]
    fn what_is_no_signature_is_refused() {
        let secrets = Secrets::new(["s"]).unwrap();
        let whole = secrets.sign(b"x");
        let short = &whole[..whole.len() - 2];
        for bad in ["", "sha256=", "sha256=zz", "sha1=00", short, &whole[7..]] {
            assert!(!secrets.verify(bad, b"x"), "{bad:?}");
        }
    }

    #[test]
    fn while_a_secret_is_changed_both_are_good() {
        let old = Secrets::new(["old"]).unwrap();
        let both = Secrets::new(["new", "old"]).unwrap();
        assert!(both.verify(&old.sign(b"x"), b"x"));
        assert!(!old.verify(&both.sign(b"x"), b"x"));
        assert!(Secrets::new([""]).is_err());
        assert!(Secrets::new([""; 0]).is_err());
    }
}
