//! NATS JWTs, version 2 (`ed25519-nkey`): the claims, their signing, and the credentials file of a user.
//! Format: github.com/nats-io/jwt, v2. Which accounts and users there are is [`super::accounts`]'s.

use std::time::{SystemTime, UNIX_EPOCH};

use data_encoding::{BASE32_NOPAD, BASE64URL_NOPAD};
use nkeys::KeyPair;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// Why a JWT was not made.
#[derive(Debug, thiserror::Error)]
pub enum JwtError {
    #[error("cannot sign the claims of {name}")]
    Sign {
        name: String,
        #[source]
        source: nkeys::error::Error,
    },
    #[error("cannot read the seed of {name}")]
    Seed {
        name: String,
        #[source]
        source: nkeys::error::Error,
    },
}

/// What a JWT says, without who signs it and when.
#[derive(Debug, Clone, PartialEq)]
pub struct Claims {
    /// The label people read.
    pub name: String,
    /// The public key it is about.
    pub subject: String,
    /// The `nats` object: `type`, `version` and what belongs to the type.
    pub nats: Value,
}

/// Signs `claims` now. `iat` and `jti` differ from call to call: see [`says`] for whether a JWT is still
/// right.
pub fn encode(claims: &Claims, issuer: &KeyPair) -> Result<String, JwtError> {
    let issued = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut body = Map::new();
    body.insert("iat".to_owned(), json!(issued));
    body.insert("iss".to_owned(), json!(issuer.public_key()));
    body.insert("name".to_owned(), json!(claims.name));
    body.insert("nats".to_owned(), claims.nats.clone());
    body.insert("sub".to_owned(), json!(claims.subject));
    let id = BASE32_NOPAD.encode(&Sha256::digest(Value::Object(body.clone()).to_string()));
    body.insert("jti".to_owned(), json!(id));
    let header = json!({"typ": "JWT", "alg": "ed25519-nkey"}).to_string();
    let signed = format!(
        "{}.{}",
        BASE64URL_NOPAD.encode(header.as_bytes()),
        BASE64URL_NOPAD.encode(Value::Object(body).to_string().as_bytes())
    );
    let signature = issuer
        .sign(signed.as_bytes())
        .map_err(|source| JwtError::Sign { name: claims.name.clone(), source })?;
    Ok(format!("{signed}.{}", BASE64URL_NOPAD.encode(&signature)))
}

/// Whether `token` is a valid JWT of `issuer` that says exactly `claims`.
pub fn says(token: &str, claims: &Claims, issuer: &KeyPair) -> bool {
    let Some((signed, signature)) = token.trim().rsplit_once('.') else { return false };
    let Some((_, body)) = signed.split_once('.') else { return false };
    let Ok(signature) = BASE64URL_NOPAD.decode(signature.as_bytes()) else { return false };
    if issuer.verify(signed.as_bytes(), &signature).is_err() {
        return false;
    }
    let decoded = BASE64URL_NOPAD.decode(body.as_bytes()).ok();
    let Some(Value::Object(body)) = decoded.and_then(|bytes| serde_json::from_slice(&bytes).ok()) else {
        return false;
    };
    body.get("iss") == Some(&json!(issuer.public_key()))
        && body.get("sub") == Some(&json!(claims.subject))
        && body.get("name") == Some(&json!(claims.name))
        && body.get("nats") == Some(&claims.nats)
}

/// The credentials file of a user: its JWT and its seed, in the form every NATS client reads.
pub fn credentials(token: &str, user: &KeyPair, name: &str) -> Result<String, JwtError> {
    let seed = user.seed().map_err(|source| JwtError::Seed { name: name.to_owned(), source })?;
    Ok(format!(
        "-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    ))
}

/// The JWT within a credentials file.
pub fn of_credentials(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("-----BEGIN NATS USER JWT-----")?;
    rest.lines().map(str::trim).find(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(subject: &KeyPair) -> Claims {
        let nats = json!({"type": "user", "version": 2, "subs": -1});
        Claims { name: "u".to_owned(), subject: subject.public_key(), nats }
    }

    #[test]
    fn a_token_says_its_claims_and_no_others() {
        let (issuer, user) = (KeyPair::new_account(), KeyPair::new_user());
        let wanted = claims(&user);
        let token = encode(&wanted, &issuer).unwrap();
        assert!(says(&token, &wanted, &issuer));
        assert!(!says(&token, &wanted, &KeyPair::new_account()), "another issuer");
        let mut other = wanted.clone();
        other.nats = json!({"type": "user", "version": 2, "subs": 1});
        assert!(!says(&token, &other, &issuer), "other rights");
        assert!(!says(&token[..token.len() - 4], &wanted, &issuer), "a torn signature");
        assert!(!says("", &wanted, &issuer));
    }

    #[test]
    fn the_header_and_the_credentials_have_the_form_clients_read() {
        let (issuer, user) = (KeyPair::new_account(), KeyPair::new_user());
        let token = encode(&claims(&user), &issuer).unwrap();
        let header = BASE64URL_NOPAD.decode(token.split('.').next().unwrap().as_bytes()).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&header).unwrap()["alg"], "ed25519-nkey");
        let file = credentials(&token, &user, "u").unwrap();
        assert_eq!(of_credentials(&file), Some(token.as_str()));
        assert!(async_nats::ConnectOptions::with_credentials(&file).is_ok());
    }
}
