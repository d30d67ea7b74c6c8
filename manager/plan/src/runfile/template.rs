//! Strict templates. In the texts of a task only `{{ … }}` is one: `{%` and `{#` are ordinary shell text. A prompt file
//! that is a template has blocks and comments too. Known are `row`, `index` and what `--set` gives; anything else is an
//! error that names it. A template can read neither files nor the environment, and its time and memory are bounded.

use std::collections::BTreeMap;

use minijinja::syntax::{SyntaxConfig, SyntaxConfigBuilder};
use minijinja::{Environment, UndefinedBehavior, Value};

use super::format::node::{Kind, Node};
use super::problem::{Place, suggestion};

/// Names that `--set` may not take.
pub const BUILT_IN: &[&str] = &["row", "index"];

/// What templates of one row can name.
pub struct Scope {
    value: Value,
    names: Vec<String>,
}

impl Scope {
    pub fn new(set: &BTreeMap<String, String>, row: Option<&Node>, index: usize) -> Self {
        let mut values: BTreeMap<String, Value> =
            set.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect();
        values.insert("index".to_owned(), Value::from(index));
        if let Some(row) = row {
            values.insert("row".to_owned(), value_of(&row.to_json()));
        }
        let names = values.keys().cloned().collect();
        Self { value: Value::from(values), names }
    }
}

/// What one text may use up: a unit for each instruction, and one for about 64 bytes that are made on the way.
const FUEL: u64 = 1_000_000;
/// Marks that no text has, in place of those of blocks and comments.
const NO_BLOCKS: (&str, &str) = ("\u{f8ff}block-begins\u{f8ff}", "\u{f8ff}block-ends\u{f8ff}");
const NO_COMMENTS: (&str, &str) = ("\u{f8ff}comment-begins\u{f8ff}", "\u{f8ff}comment-ends\u{f8ff}");

/// Renders the texts of task nodes.
pub struct Renderer {
    /// `{{ … }}` and nothing else.
    texts: Environment<'static>,
    /// With blocks and comments.
    files: Environment<'static>,
}

/// A text that could not be rendered.
#[derive(Debug, PartialEq, Eq)]
pub struct RenderError {
    pub at: Place,
    pub message: String,
}

impl Default for Renderer {
    fn default() -> Self {
        let environment = |syntax: &mut SyntaxConfigBuilder| {
            let mut environment = Environment::new();
            environment.set_undefined_behavior(UndefinedBehavior::Strict);
            environment.set_fuel(Some(FUEL));
            environment.set_syntax(syntax.keep_trailing_newline(true).build().unwrap_or_default());
            environment
        };
        let (no_blocks, no_comments) = (NO_BLOCKS, NO_COMMENTS);
        Self {
            texts: environment(
                SyntaxConfig::builder()
                    .block_delimiters(no_blocks.0, no_blocks.1)
                    .comment_delimiters(no_comments.0, no_comments.1),
            ),
            files: environment(&mut SyntaxConfig::builder()),
        }
    }
}

impl Renderer {
    /// `node` with every text in it rendered. All texts that fail are in `errors`.
    pub fn render(&self, node: &Node, scope: &Scope, errors: &mut Vec<RenderError>) -> Node {
        let kind = match &node.kind {
            Kind::Text(text) => match self.render_text(text, scope) {
                Ok(text) => Kind::Text(text),
                Err(message) => {
                    errors.push(RenderError { at: node.at, message });
                    Kind::Text(text.clone())
                }
            },
            Kind::List(items) => {
                Kind::List(items.iter().map(|item| self.render(item, scope, errors)).collect())
            }
            Kind::Map(entries) => Kind::Map(
                entries.iter().map(|(key, item)| (key.clone(), self.render(item, scope, errors))).collect(),
            ),
            scalar @ (Kind::Null | Kind::Bool { .. } | Kind::Number { .. }) => scalar.clone(),
        };
        Node { at: node.at, kind }
    }

    fn render_text(&self, text: &str, scope: &Scope) -> Result<String, String> {
        if !text.contains("{{") {
            return Ok(text.to_owned());
        }
        self.rendered(&self.texts, text, scope)
    }

    /// A prompt file that is a template as a whole.
    pub(super) fn render_file(&self, text: &str, scope: &Scope) -> Result<String, String> {
        self.rendered(&self.files, text, scope)
    }

    fn rendered(
        &self,
        environment: &Environment<'static>,
        text: &str,
        scope: &Scope,
    ) -> Result<String, String> {
        let template = environment.template_from_str(text).map_err(|error| {
            format!(
                "the template is wrong{}: {}; write {{{{ '{{{{' }}}} for a literal {{{{, or template: false",
                in_line(error.line()),
                error.detail().unwrap_or("syntax error")
            )
        })?;
        template.render(&scope.value).map_err(|error| {
            if error.kind() == minijinja::ErrorKind::UndefinedError {
                let missing =
                    template.undeclared_variables(true).into_iter().filter(|path| !known(path, scope)).min();
                if let Some(path) = missing {
                    return self.undefined(&path, scope);
                }
            }
            if error.kind() == minijinja::ErrorKind::OutOfFuel {
                return format!(
                    "the template takes too much{}: one text may use {FUEL} steps, and make 64 MB on its way",
                    in_line(error.line())
                );
            }
            let detail = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
            format!("the template cannot be rendered{}: {detail}", in_line(error.line()))
        })
    }

    fn undefined(&self, path: &str, scope: &Scope) -> String {
        let top = path.split('.').next().unwrap_or(path);
        if top == "row" && !scope.names.iter().any(|name| name == "row") {
            return format!("the template names {path}, but there are no rows; give --map or rows:");
        }
        if let (true, Some((parent, leaf))) =
            (scope.names.iter().any(|name| name == top), path.rsplit_once('.'))
        {
            let fields: Vec<String> = look_up(parent, scope)
                .and_then(|value| value.try_iter().ok().map(|keys| keys.map(|key| key.to_string()).collect()))
                .unwrap_or_default();
            let hint = suggestion(leaf, fields.iter().map(String::as_str));
            return format!("the template names {path}, which is undefined{hint}");
        }
        let hint = suggestion(top, scope.names.iter().map(String::as_str));
        format!("the template names {path}, which is undefined{hint}; set it with --set {top}=VALUE")
    }
}

/// JSON as a value of a template.
pub fn value_of(json: &serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::from(()),
        serde_json::Value::Bool(value) => Value::from(*value),
        serde_json::Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
            (Some(whole), ..) => Value::from(whole),
            (None, Some(whole), _) => Value::from(whole),
            (None, None, part) => Value::from(part.unwrap_or(f64::NAN)),
        },
        serde_json::Value::String(text) => Value::from(text.as_str()),
        serde_json::Value::Array(items) => Value::from(items.iter().map(value_of).collect::<Vec<_>>()),
        serde_json::Value::Object(entries) => {
            Value::from(entries.iter().map(|(k, v)| (k.clone(), value_of(v))).collect::<BTreeMap<_, _>>())
        }
    }
}

fn in_line(line: Option<usize>) -> String {
    line.filter(|line| *line > 1).map(|line| format!(" in its line {line}")).unwrap_or_default()
}

fn look_up(path: &str, scope: &Scope) -> Option<Value> {
    let mut value = scope.value.clone();
    for name in path.split('.') {
        value = value.get_attr(name).ok().filter(|value| !value.is_undefined())?;
    }
    Some(value)
}

fn known(path: &str, scope: &Scope) -> bool {
    look_up(path, scope).is_some()
}

#[cfg(test)]
mod tests {
    use super::super::format::yaml;
    use super::*;

    fn render(text: &str, row: &str) -> Result<String, String> {
        let row = yaml::parse(row).unwrap();
        let set = BTreeMap::from([("model".to_owned(), "big".to_owned())]);
        let scope = Scope::new(&set, (row.kind != Kind::Null).then_some(&row), 3);
        Renderer::default().render_text(text, &scope)
    }

    #[test]
    fn rows_variables_and_the_index_are_known() {
        assert_eq!(
            render("{{ row.file }} {{ model }} {{ index }}\n", "file: a.rs"),
            Ok("a.rs big 3\n".into())
        );
        assert_eq!(render("{{ row }}", "plain"), Ok("plain".into()));
        assert_eq!(render("{{ '{{' }} x }}", "a"), Ok("{{ x }}".into()));
        assert_eq!(render("{{ row.nope | default('-') }}", "a: 1").map(|_| ()), Ok(()));
    }

    #[test]
    fn what_is_undefined_is_named_with_the_nearest_known() {
        let error = render("{{ row.fiel }}", "file: a").unwrap_err();
        assert_eq!(error, r#"the template names row.fiel, which is undefined; did you mean "file"?"#);
        let error = render("{{ modle }}", "file: a").unwrap_err();
        assert!(error.contains(r#"did you mean "model"?"#) && error.contains("--set modle=VALUE"), "{error}");
        let error = render("{{ row.x }}", "").unwrap_err();
        assert!(error.contains("give --map or rows:"), "{error}");
    }

    #[test]
    fn nothing_outside_can_be_read() {
        let scope = Scope::new(&BTreeMap::new(), None, 1);
        for text in ["{% include '/etc/passwd' %}", "{{ env('HOME') }}", "{% import 'x' as y %}"] {
            assert!(Renderer::default().render_file(text, &scope).is_err(), "{text}");
        }
    }

    #[test]
    fn shell_text_that_looks_like_a_block_or_a_comment_stays_as_it_is() {
        for text in ["s=ab; echo n ${#s}; exit 9; echo {x#}", "echo ${#arr[@]} {% x %}", "awk '{#a} {print}'"]
        {
            assert_eq!(render(text, "a"), Ok(text.to_owned()));
            assert_eq!(render(&format!("{text} {{{{ index }}}}"), "a"), Ok(format!("{text} 3")));
        }
        let error = render("docker ps --format '{{.Names}}'", "a").unwrap_err();
        assert!(error.contains("template: false"), "{error}");
    }

    #[test]
    fn a_template_without_end_or_measure_is_refused() {
        let nested = "{% for a in range(10000) %}{% for b in range(10000) %}{% for c in range(10000) %}x{% endfor %}{% endfor %}{% endfor %}";
        let doubled = "{% set n = namespace(s='xxxxxxxx') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s }}";
        let scope = Scope::new(&BTreeMap::new(), None, 1);
        for text in [nested, doubled, "{{ '%999999999d'|format(1) }}", "{{ 'x' * 999999999 }}"] {
            let error = Renderer::default().render_file(text, &scope).unwrap_err();
            assert!(error.contains("takes too much") || error.contains("too large"), "{text}: {error}");
        }
    }
}
