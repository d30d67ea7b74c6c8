//! Names of branches and refs, checked before git sees them. Leaves to others: what a branch is
//! called, and whether a name is free.

use super::error::{Error, Result};

const SLUG_MAX: usize = 40;

/// Lower-case ASCII letters, digits and single dashes, at most 40; `x` when nothing is left.
#[must_use]
pub(crate) fn slug(label: &str) -> String {
    let mut slug = String::new();
    for letter in label.chars() {
        let letter = letter.to_ascii_lowercase();
        if letter.is_ascii_alphanumeric() {
            slug.push(letter);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
        if slug.len() == SLUG_MAX {
            break;
        }
    }
    let slug = slug.trim_end_matches('-');
    if slug.is_empty() { "x".to_owned() } else { slug.to_owned() }
}

/// The rules of `git check-ref-format`, for a full ref name such as `refs/heads/x`.
pub(crate) fn check_ref(what: &'static str, name: &str) -> Result<()> {
    let wrong = |why| Err(Error::BadName { what, name: name.to_owned(), why });
    if !name.contains('/') {
        return wrong("it has only one level");
    }
    if name.len() > 1000 {
        return wrong("it is too long");
    }
    if name.ends_with('.') {
        return wrong("it ends with `.`");
    }
    if name.contains("..") || name.contains("@{") {
        return wrong("it holds `..` or `@{`");
    }
    if name.chars().any(|c| c.is_control() || " ~^:?*[\\".contains(c)) {
        return wrong("it holds a space, a control character or one of ~^:?*[\\");
    }
    for level in name.split('/') {
        if level.is_empty() {
            return wrong("it has an empty level");
        }
        if level.starts_with('.') || level.starts_with('-') {
            return wrong("a level starts with `.` or `-`");
        }
        if level.ends_with(".lock") {
            return wrong("a level ends with `.lock`");
        }
        if level.len() > 250 {
            return wrong("a level is too long for a file name");
        }
    }
    Ok(())
}

/// A branch name, with or without `refs/heads/`; the full name.
pub(crate) fn check_branch(name: &str) -> Result<String> {
    let name = name.strip_prefix("refs/heads/").unwrap_or(name);
    if name == "HEAD" {
        return Err(Error::BadName {
            what: "a branch",
            name: name.to_owned(),
            why: "git keeps it for itself",
        });
    }
    let full = format!("refs/heads/{name}");
    check_ref("a branch", &full)?;
    Ok(full)
}

/// A ref of ours: the only ones that are ever written or dropped without being asked by name.
pub(crate) fn check_own_ref(name: &str) -> Result<()> {
    check_ref("a ref", name)?;
    if name.starts_with("refs/phalanx/") {
        return Ok(());
    }
    Err(Error::BadName { what: "a ref", name: name.to_owned(), why: "it is not under refs/phalanx/" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_label_gives_a_level_that_git_takes() {
        let labels =
            ["", "..", "-x", "a.lock", "naïve 名前", "A//b", "@{", "x".repeat(200).leak(), "~^:?*[\\"];
        for label in labels {
            let slug = slug(label);
            check_branch(&slug).expect(label);
            assert!(slug.is_ascii() && slug.len() <= SLUG_MAX && !slug.contains('/'), "{slug}");
        }
        assert_eq!(slug("Naïve 名前 run"), "na-ve-run");
    }

    #[test]
    fn names_that_git_refuses_are_refused() {
        for bad in [
            "", "a..b", "a b", "/a", "a/", "a//b", "-a", "a/-b", ".a", "a/.b", "a.lock", "a.lock/b", "a@{b",
            "a:", "a\\", "a\n", "a.", "HEAD",
        ] {
            assert!(check_branch(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn only_refs_of_ours_may_be_dropped() {
        assert!(check_own_ref("refs/heads/main").is_err());
        assert!(check_own_ref("refs/phalanx/../heads/main").is_err());
        check_own_ref("refs/phalanx/run/task/1").unwrap();
    }
}
