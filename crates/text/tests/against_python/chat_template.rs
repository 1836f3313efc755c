//! Prompts equal to those of `transformers`.

use crate::fixture;
use kiln_text::{ChatTemplate, Message, RenderOptions, TemplateValue, TextError};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant, UNIX_EPOCH};

#[derive(Deserialize)]
struct Fixture {
    templates: BTreeMap<String, String>,
    /// Messages as JSON, so that their keys keep their order.
    chats: BTreeMap<String, Vec<String>>,
    tool: String,
    now: u64,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    template: String,
    chat: String,
    tools: bool,
    add_generation_prompt: bool,
    expected: Option<String>,
    error: Option<String>,
}

fn message(json: &str) -> Message {
    #[derive(Deserialize)]
    struct Plain {
        role: String,
        content: String,
        tool_calls: Option<serde_json::Value>,
    }
    let plain: Plain = serde_json::from_str(json).unwrap();
    let message = Message::new(plain.role, plain.content);
    match plain.tool_calls {
        Some(_) => {
            // The text of the value, whose keys keep their order.
            let calls = json.split_once("\"tool_calls\": ").unwrap().1.strip_suffix('}').unwrap();
            message.with_field("tool_calls", TemplateValue::from_json(calls).unwrap())
        }
        None => message,
    }
}

#[test]
fn templates_render_as_in_transformers() {
    let fixture: Fixture = fixture("templates.json");
    let (mut rendered, mut refused) = (0, 0);
    for case in &fixture.cases {
        let template = ChatTemplate::new(fixture.templates[&case.template].as_str()).unwrap();
        let messages: Vec<Message> = fixture.chats[&case.chat].iter().map(|json| message(json)).collect();
        let options = RenderOptions {
            tools: if case.tools {
                vec![TemplateValue::from_json(&fixture.tool).unwrap()]
            } else {
                Vec::new()
            },
            add_generation_prompt: case.add_generation_prompt,
            bos_token: Some("<s>".into()),
            eos_token: Some("</s>".into()),
            now: Some(UNIX_EPOCH + Duration::from_secs(fixture.now)),
            ..RenderOptions::default()
        };
        let own = template.render(&messages, &options);
        let name = format!("{} of {}", case.template, case.chat);
        match (&case.expected, &case.error) {
            (Some(expected), _) => {
                assert_eq!(&own.unwrap_or_else(|error| panic!("{name}: {error}")), expected, "{name}");
                rendered += 1;
            }
            (None, Some(error)) => {
                let own = own.unwrap_err();
                assert!(
                    matches!(&own, TextError::TemplateRefused { message } if message == error),
                    "{name}: {own}, not {error}"
                );
                refused += 1;
            }
            (None, None) => panic!("{name} has no expected result"),
        }
    }
    println!("{rendered} rendered, {refused} refused");
}

#[test]
fn expressions_have_the_text_of_jinja() {
    #[derive(Deserialize)]
    struct Jinja {
        variables: BTreeMap<String, serde_json::Value>,
        cases: Vec<Expression>,
        printable: Printable,
    }
    #[derive(Deserialize)]
    struct Expression {
        template: String,
        expected: Option<String>,
    }
    #[derive(Deserialize)]
    struct Printable {
        text: String,
        repr: String,
    }
    let Jinja { mut variables, cases, printable } = fixture("jinja.json");
    variables.insert("printable".to_owned(), printable.text.into());
    let variables = variables.into_iter().map(|(name, value)| (name, TemplateValue::from_serialize(value)));
    let options = RenderOptions { variables: variables.collect(), ..RenderOptions::default() };
    let render = |source: &str| ChatTemplate::new(source).and_then(|template| template.render(&[], &options));
    let mut wrong = Vec::new();
    for Expression { template, expected } in cases {
        match (render(&template), expected) {
            (Ok(own), Some(expected)) if own == expected => {}
            (Err(_), None) => {}
            (own, expected) => wrong.push(format!("{template}\n  own      {own:?}\n  expected {expected:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(render("{{ [printable] }}").unwrap(), format!("[{}]", printable.repr));
}

#[test]
fn errors_name_the_line() {
    let error = ChatTemplate::new("a\n{% if %}").unwrap_err().to_string();
    assert!(error.starts_with("chat template: cannot parse the template"), "{error}");
    assert!(error.contains(":2"), "{error}");
    let template = ChatTemplate::new("a\n\n{{ messages.nothing.more }}").unwrap();
    let error = template.render(&[], &RenderOptions::default()).unwrap_err().to_string();
    assert!(error.contains(":3"), "{error}");
}

#[test]
fn hostile_templates_end_in_bounded_time() {
    let list = "{% set x = [0] %}".to_owned() + &"{% set x = [x, x] %}".repeat(60);
    let hostile = [
        "{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}".to_owned(),
        "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}".to_owned(),
        "{{ 'x' * 10000000000 }}".to_owned(),
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}".to_owned(),
        "{{ range(1000000000)|list|length }}".to_owned(),
        "{% set ns = namespace(s='x') %}{% for a in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}".to_owned(),
        format!("{list}{{{{ x }}}}"),
        format!("{list}{{{{ x|tojson }}}}"),
        format!("{list}{{{{ x|tojson(indent=100000) }}}}"),
        format!("{list}{{{{ x|string }}}}"),
        "{".repeat(10_000),
        "{{ ".to_owned() + &"(".repeat(10_000),
        "{% if a %}".repeat(10_000),
        "{{ strftime_now('%Q') }}".to_owned(),
        "{{ raise_exception(1, 2, 3) }}".to_owned(),
        "{{ '%10000000000s' % 1 }}".to_owned(),
        format!("{{{{ '{}' % 1 }}}}", "%1$s%99999999s".repeat(100)),
        format!("{list}{{{{ '%s' % [x] }}}}"),
        format!("{list}{{{{ [x, x]|join }}}}"),
        format!("{list}{{{{ x ~ x }}}}"),
        "{% set ns = namespace(s='x') %}{% for a in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}".to_owned(),
        "{% set ns = namespace(s='x') %}{% for a in range(99) %}{% set ns.s = '%s%s' % (ns.s, ns.s) %}{% endfor %}".to_owned(),
        "{% set ns = namespace(s='x') %}{% for a in range(99) %}{% set ns.s = [ns.s, ns.s]|join %}{% endfor %}".to_owned(),
        "{% set ns = namespace(s='/') %}{% for a in range(99) %}{% set ns.s = ns.s|urlencode ~ ns.s %}{% endfor %}".to_owned(),
        "{% macro f() %}{{ varargs }}{% set f = f %}{{ f(*varargs) }}{% endmacro %}{{ f(1) }}".to_owned(),
        format!("{{{{ {} }}}}", "a % ".repeat(10_000)),
        format!("{{{{ {} a }}}}", "a ~ ".repeat(10_000)),
    ];
    for source in hostile {
        let start = Instant::now();
        let outcome = ChatTemplate::new(source.as_str()).map(|template| template.with_fuel(200_000));
        let outcome =
            outcome.and_then(|template| template.render(&[Message::user("x")], &RenderOptions::default()));
        let shown = &source[..source.len().min(60)];
        println!("{:?} {shown}: {:?}", start.elapsed(), outcome.as_ref().map(String::len));
        assert!(outcome.is_err() || source.starts_with("{{{"), "{shown}");
        assert!(start.elapsed() < Duration::from_secs(20), "{shown}");
    }
}

#[test]
fn long_expressions_render_and_longer_ones_are_refused() {
    let render = |source: String| ChatTemplate::new(source)?.render(&[], &RenderOptions::default());
    let sum = |operator: &str, count: usize| format!("{{{{ 1{} }}}}", format!(" {operator} 1").repeat(count));
    assert_eq!(render(sum("+", 400)).unwrap(), "401");
    assert_eq!(render(sum("~", 400)).unwrap(), "1".repeat(401));
    for operator in ["+", "~", "%", "and", "== 1 if", "|default(1) +", "**"] {
        let error = render(sum(operator, 10_000)).unwrap_err().to_string();
        assert!(
            error.contains("an expression has more than the 500 operators allowed"),
            "{operator}: {error}"
        );
    }
    let error = render(format!("{{{{ {}1 }}}}", "not ".repeat(10_000))).unwrap_err().to_string();
    assert!(error.contains("an expression has more than the 500 operators allowed"), "{error}");
    // Also without an end.
    assert!(render(format!("{{{{ 1{}", " + 1".repeat(10_000))).is_err());
    // Operators of different items do not add up.
    let list = "1 + 1, ".repeat(1_000);
    assert_eq!(render(format!("{{{{ [{list}]|length }}}}")).unwrap(), "1000");
}

#[test]
fn fields_and_variables_reach_the_template() {
    let source = "{{ thinking }}{% for m in messages %}{{ m.name }}: {{ m.content[0].text }}{% endfor %}{{ bos_token }}";
    let template = ChatTemplate::new(source).unwrap();
    let parts = TemplateValue::from_json(r#"[{"type": "text", "text": "hi"}]"#).unwrap();
    let message = Message::user("").with_field("name", "Ada".into()).with_field("content", parts);
    let mut options = RenderOptions::default();
    options.variables.insert("thinking".into(), true.into());
    assert_eq!(template.render(&[message], &options).unwrap(), "TrueAda: hi");
    assert_eq!(template.source(), source);
    assert!(TemplateValue::from_json("{").is_err());
    assert_eq!(TemplateValue::from_serialize(vec![1, 2]), TemplateValue::from_json("[1, 2]").unwrap());
}
