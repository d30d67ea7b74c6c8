//! A label as a piece of a branch or file name: lower-case ASCII letters, digits and `-`.

/// At most `length` characters; empty when the label has none that fit.
pub fn slug(label: &str, length: usize) -> String {
    let mut slug = String::new();
    for c in label.chars() {
        let c = c.to_ascii_lowercase();
        if c.is_ascii_alphanumeric() {
            slug.push(c);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
        if slug.len() >= length {
            break;
        }
    }
    slug.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_label_becomes_a_safe_piece_of_a_name() {
        assert_eq!(slug("Fix: the a.b:c bug!", 40), "fix-the-a-b-c-bug");
        assert_eq!(slug("名前", 40), "");
        assert_eq!(slug("../../etc", 40), "etc");
        assert_eq!(slug(&"x".repeat(99), 40).len(), 40);
    }
}
