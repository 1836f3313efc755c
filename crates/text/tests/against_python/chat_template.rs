//! Prompts equal to those of `transformers`.

use crate::against_python::fixture;
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
fn brackets_that_are_not_closed_are_errors_of_the_template() {
    let ends = "a é 'é' b[é b[c[é (é é) -é é, é~é é.é [] loop.changed(é";
    for end in ends.split(' ') {
        for start in ["a[", "a['é'][", "é[(", "loop.changed(é)[", "not é["] {
            for close in ["", " }}", "]", ") }}", "% }}"] {
                let template = format!("{{{{ {start}{end}{close}");
                if let Err(error) = ChatTemplate::new(template.clone()) {
                    assert!(!error.to_string().contains("the library failed"), "{template}: {error}");
                }
            }
        }
    }
}

#[test]
fn hostile_templates_end_in_bounded_time() {
    let list = "{% set x = [0] %}".to_owned() + &"{% set x = [x, x] %}".repeat(60);
    // Arguments of macros, not variables: `x` and `y` are equal, and have 2^60 items each.
    let twins = |use_them: &str| {
        "{% macro f(n, x, y) %}{% if n %}{{ f(n - 1, [x, x], [y, y]) }}{% else %}".to_owned()
            + use_them
            + "{% endif %}{% endmacro %}{{ f(60, 0, 0) }}"
    };
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
        // Comparing, hashing, sorting and joining values that contain others many times.
        format!("{list}{{{{ x == [0] }}}}"),
        twins("{{ x == y }}"),
        twins("{{ x < y }}"),
        twins("{{ x in [y] }}"),
        twins("{% if [x] is eq([y]) %}{% endif %}"),
        twins("{{ [x, y]|sort }}"),
        twins("{{ [x, y]|unique|list }}"),
        twins("{{ [x, y]|max }}"),
        twins("{{ [[x, 1]]|groupby(0) }}"),
        twins("{{ [{'a': x}]|selectattr('a', 'eq', y)|list }}"),
        twins("{{ [x, x].count(y) }}"),
        twins("{{ ''.join([x]) }}"),
        twins("{{ '{}'.format(x) }}"),
        twins("{{ {x: 1}[y] }}"),
        twins("{{ {'a': 1}.get(x) }}"),
        twins("{% for a in [x, y] %}{{ loop.changed(a) }}{% endfor %}"),
        twins("{{ x|upper }}"),
        // Values that contain others deeply.
        "{% set ns = namespace(s=[]) %}{% for a in range(99999) %}{% set ns.s = [ns.s] %}{% endfor %}".to_owned(),
        "{% set ns = namespace(s=[]) %}{% for a in range(99999) %}{% set ns.s = {'a': ns.s} %}{% endfor %}".to_owned(),
        "{% set ns = namespace(s=[]) %}{% for a in range(99999) %}{% set ns.s = namespace(s=ns.s) %}{% endfor %}".to_owned(),
        "{% set ns = namespace(s=[1]) %}{% for a in range(9999) %}{% set ns.s = ns.s * 2 %}{% endfor %}".to_owned(),
        "{% set ns = namespace(s=[1]) %}{% for a in range(9999) %}{% set ns.s = ns.s + ns.s %}{% endfor %}".to_owned(),
        "{% set ns = namespace(s=[1]) %}{% set ns.s = [ns] %}{{ ns.s == [1] }}".to_owned(),
        "{% macro f(x) %}{{ f([x, x]) }}{% endmacro %}{{ f(1) }}".to_owned(),
        "{% for a in [[1]] recursive %}{{ loop([[a]]) }}{% endfor %}".to_owned(),
        // Sources that nest deeply.
        format!("{{{{ {}1 }}}}", "not ".repeat(60_000)),
        format!("{{{{ {}1 }}}}", "1+".repeat(120_000)),
        format!("{{{{ 1{} }}}}", "|upper".repeat(40_000)),
        format!("{{{{ {}1 }}}}", "not ".repeat(100_000)),
        format!("{{{{ {}1 }}}}", "1+".repeat(500_000)),
        format!("{{{{ 1{} }}}}", "|upper".repeat(200_000)),
        format!("{{{{ a{} }}}}", "[0]".repeat(50_000)),
        format!("{{{{ a{} }}}}", "()".repeat(50_000)),
        format!("{{% if a %}}{}{{% endif %}}", "{% elif a %}".repeat(20_000)),
        "{% for a in b %}".repeat(10_000),
        "{% raw %}".repeat(20_000),
        "{% macro f() %}{{ varargs }}".repeat(5_000),
        // Text and lists that one call makes.
        "{{ [1]|batch(1000000000000, 0)|list }}".to_owned(),
        "{{ [1]|slice(1000000000000)|list }}".to_owned(),
        "{{ ('x' * 100000)|replace('', 'y' * 100000) }}".to_owned(),
        "{{ ('x' * 100000).replace('', 'y' * 100000) }}".to_owned(),
        "{{ ('\n' * 1000000)|indent(1000000) }}".to_owned(),
        "{{ '{:>1000000000000}'.format(1) }}".to_owned(),
        "{{ '{:>{}}'.format(1, 1000000000000) }}".to_owned(),
        "{{ ('{0}' * 10000).format('x' * 100000) }}".to_owned(),
        "{{ range(100000)|map('string')|join('x' * 100000) }}".to_owned(),
        "{{ (1, 2) * 1000000000 }}".to_owned(),
        "{% set ns = namespace(s='x') %}{% for a in range(99) %}{% set ns.s = ns.s|replace('x', 'xx') %}{% endfor %}".to_owned(),
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
