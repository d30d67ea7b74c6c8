//! Strict `{{ … }}` templates in the texts of a task. Known are `row`, `index` and what `--set` gives; anything else
//! is an error that names it. A template can read neither files nor the environment.

use std::collections::BTreeMap;

use minijinja::syntax::SyntaxConfig;
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

/// Renders the texts of task nodes.
pub struct Renderer {
    environment: Environment<'static>,
}

/// A text that could not be rendered.
#[derive(Debug, PartialEq, Eq)]
pub struct RenderError {
    pub at: Place,
    pub message: String,
}

impl Default for Renderer {
    fn default() -> Self {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        let syntax = SyntaxConfig::builder().keep_trailing_newline(true).build();
        environment.set_syntax(syntax.unwrap_or_default());
        Self { environment }
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

    pub(super) fn render_text(&self, text: &str, scope: &Scope) -> Result<String, String> {
        if !["{{", "{%", "{#"].iter().any(|mark| text.contains(mark)) {
            return Ok(text.to_owned());
        }
        let template = self.environment.template_from_str(text).map_err(|error| {
            format!(
                "the template is wrong{}: {}",
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
        assert_eq!(render("{% raw %}{{ x }}{% endraw %}", "a"), Ok("{{ x }}".into()));
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
        for text in ["{% include '/etc/passwd' %}", "{{ env('HOME') }}", "{% import 'x' as y %}"] {
            assert!(render(text, "a").is_err(), "{text}");
        }
    }
}
