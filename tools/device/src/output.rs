//! How errors reach a person or a script.

use std::error::Error;
use std::iter::successors;

/// The error and its causes, outermost first, without those that repeat what was said before.
#[must_use]
pub fn chain(error: &(dyn Error + 'static)) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    for cause in successors(Some(error), |&error| error.source()) {
        let text = cause.to_string();
        if !texts.iter().any(|said| said.contains(&text)) {
            texts.push(text);
        }
    }
    texts
}

/// The error as one JSON object: `code` is stable, for scripts; `message` and `causes` are for people.
#[must_use]
pub fn error_json(code: &str, error: &(dyn Error + 'static)) -> String {
    let mut texts = chain(error);
    let causes = texts.split_off(texts.len().min(1));
    let message = texts.pop().unwrap_or_default();
    serde_json::json!({ "code": code, "message": message, "causes": causes }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the drive cannot be opened")]
    struct Outer(#[source] Inner);

    #[derive(Debug, thiserror::Error)]
    #[error("memory: {0}")]
    struct Inner(#[source] std::fmt::Error);

    /// Causes are listed once each, though some errors repeat them in their own text.
    #[test]
    fn causes_are_not_repeated() {
        let error = Outer(Inner(std::fmt::Error));
        let texts = chain(&error);
        assert_eq!(texts.len(), 2, "{texts:?}");
        assert_eq!(texts[0], "the drive cannot be opened");
        let json: serde_json::Value = serde_json::from_str(&error_json("open", &error)).unwrap();
        assert_eq!(json["code"], "open");
        assert_eq!(json["message"], texts[0]);
        assert_eq!(json["causes"][0], texts[1]);
    }
}
