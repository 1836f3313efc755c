//! Tests of frames on a screen in memory.

use std::time::{Duration, Instant};

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::draw::{Scene, draw};
use super::palette::Palette;
use super::view::{Action, Focus, Shown, View, Window};
use super::{Model, summary};
use crate::metric::MetricValue;
use crate::record::{Level, Record, RunDescription, Split, ValuesRecord};
use crate::renderer::model::tests::{model_at_work, step, valid};
use crate::renderer::{DeviceUse, MemoryUse, SystemUse};

fn system() -> SystemUse {
    let memory =
        |used: u64, total: u64| Some(MemoryUse { used: used * 1_000_000_000, total: total * 1_000_000_000 });
    SystemUse {
        cpu: Some(0.42),
        memory: memory(3, 16),
        devices: vec![DeviceUse { name: "GPU 0".into(), compute: Some(0.87), memory: memory(10, 80) }],
    }
}

struct Screen {
    terminal: Terminal<TestBackend>,
    view: View,
    model: Model,
    now: Instant,
    is_stopping: bool,
}

impl Screen {
    fn new(width: u16, height: u16) -> Screen {
        let start = Instant::now();
        Screen::of(model_at_work(start), start + Duration::from_millis(2500), width, height)
    }

    fn of(model: Model, now: Instant, width: u16, height: u16) -> Screen {
        let terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        Screen { terminal, view: View::new(Palette::Plain), model, now, is_stopping: false }
    }

    /// Draws a frame and returns its rows.
    fn rows(&mut self) -> Vec<String> {
        let system = system();
        let scene =
            Scene { model: &self.model, system: Some(&system), is_stopping: self.is_stopping, now: self.now };
        self.terminal.draw(|frame| draw(frame, &scene, &mut self.view)).unwrap();
        let buffer = self.terminal.backend().buffer();
        let width = buffer.area.width.max(1) as usize;
        let rows = buffer.content.chunks(width);
        rows.map(|cells| cells.iter().map(|cell| cell.symbol()).collect()).collect()
    }

    fn text(&mut self) -> String {
        self.rows().join("\n")
    }

    fn key(&mut self, code: KeyCode) -> Action {
        self.view.handle(&Event::Key(KeyEvent::new(code, KeyModifiers::NONE)), &self.model)
    }

    fn mouse(&mut self, kind: MouseEventKind, column: u16, row: u16) -> Action {
        let mouse = MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE };
        self.view.handle(&Event::Mouse(mouse), &self.model)
    }
}

fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
}

#[test]
fn a_small_terminal_shows_all_panels_but_the_log() {
    let mut screen = Screen::new(80, 24);
    let text = screen.text();
    let parts = [
        "Kiln demo  synthetic",
        "training",
        "Metrics >loss  accuracy",
        " loss  ─ train 0.04  • valid 1.6 ",
        " whole run, train and valid, EMA 0.6 ",
        "Values",
        " metric   train    valid    best",
        ">loss     0.04     1.6      0.6",
        " accuracy 80.00 %  75.00 %  75.00 %",
        "learning rate 0.001",
        "items/s       320",
        "skipped steps 1",
        "Progress",
        "50 % 5/10  ",
        "83 % epoch 3/3  3 s",
        "System CPU 42 %  memory 3.0/16.0 GB  GPU 0 87 % 10.0/80.0 GB",
        "? help  q stop",
    ];
    assert_contains(&text, &parts);
    assert!(!text.contains("Log"), "{text}");
    assert!(text.chars().any(|sign| ('\u{2801}'..='\u{28ff}').contains(&sign)), "no curve in\n{text}");
}

#[test]
fn a_large_terminal_also_shows_log_system_and_epochs_of_best_values() {
    let text = Screen::new(200, 60).text();
    let parts = [
        " Log ",
        "epoch 2: train loss 0.25  train accuracy 80.00 %  valid loss 1.6  valid accuracy 75.00 %  1.0 s",
        " System ",
        "CPU     42 %",
        "GPU 0   87 %  10.0/80.0 GB",
        "in epoch",
        "accuracy 80.00 %  75.00 %  75.00 %  2",
    ];
    assert_contains(&text, &parts);
}

/// No panel covers a corner of another. Lower left corners are not counted, since the axes of the chart have one too.
#[test]
fn panels_do_not_overlap() {
    for (width, height, panels) in [(80, 24, 3), (80, 40, 5), (200, 60, 5), (48, 14, 3)] {
        let rows = Screen::new(width, height).rows();
        let count = |sign: char| rows.iter().map(|row| row.matches(sign).count()).sum::<usize>();
        let corners = ['┌', '┐', '┘'].map(count);
        assert_eq!(corners, [panels; 3], "{width}x{height}\n{}", rows.join("\n"));
    }
}

#[test]
fn every_size_can_be_drawn() {
    for (width, height) in
        [(0, 0), (1, 1), (20, 5), (48, 14), (47, 60), (200, 13), (500, 3), (3, 200), (60, 15)]
    {
        let mut screen = Screen::new(width, height);
        for code in [KeyCode::Char('l'), KeyCode::Char('?'), KeyCode::Right, KeyCode::Char('w')] {
            screen.rows();
            screen.key(code);
        }
        let rows = screen.rows();
        assert_eq!(rows.len(), usize::from(height), "{width}x{height}");
    }
    assert_contains(&Screen::new(20, 5).text(), &["epoch 3/3  5/10", "loss: train 0.04"]);
}

#[test]
fn a_run_before_its_first_record_can_be_drawn() {
    let mut screen = Screen::of(Model::default(), Instant::now(), 80, 24);
    assert_contains(&screen.text(), &["waiting for the first step", "starting", "Progress"]);
    screen.key(KeyCode::Right);
    screen.model.record(&Record::Start(RunDescription::default()), screen.now);
    assert_contains(&screen.text(), &[" loss ", " whole run, train and valid "]);
}

#[test]
fn keys_change_metric_split_window_and_panes() {
    let mut screen = Screen::new(80, 24);
    screen.rows();
    assert_eq!(screen.key(KeyCode::Right), Action::Changed);
    assert_contains(&screen.text(), &[" accuracy  ─ train 80.00 %"]);
    screen.key(KeyCode::Right);
    assert_contains(&screen.text(), &[" loss  ─ train 0.04"]);
    screen.key(KeyCode::Left);
    assert_eq!(screen.view.selected, 1);
    screen.key(KeyCode::Down);
    let text = screen.text();
    assert_contains(&text, &[" whole run, train "]);
    assert!(!text.contains("• valid"), "{text}");
    screen.key(KeyCode::Down);
    assert_contains(&screen.text(), &[" whole run, valid ", "• valid 75.00 %"]);
    screen.key(KeyCode::Up);
    assert_eq!(screen.view.shown, Shown::Train);
    screen.key(KeyCode::Char('w'));
    assert_eq!(screen.view.window, Window::Recent);
    assert_contains(&screen.text(), &[" last steps, train "]);
    screen.key(KeyCode::Char('l'));
    assert_contains(&screen.text(), &[" Log ", "epoch 2: train loss"]);
    screen.key(KeyCode::Tab);
    assert_eq!(screen.view.focus, Focus::Log);
    screen.key(KeyCode::Up);
    let text = screen.text();
    assert!(text.contains("epoch 1: train") && !text.contains("epoch 2: train"), "{text}");
    screen.key(KeyCode::Char('l'));
    assert!(!screen.text().contains(" Log "));
    screen.key(KeyCode::Char('?'));
    assert_contains(&screen.text(), &[" Help ", "stop after this step; again: at once"]);
    screen.key(KeyCode::Esc);
    assert!(!screen.text().contains(" Help "));
    assert_eq!(screen.key(KeyCode::Char('q')), Action::Stop);
    assert_eq!(screen.key(KeyCode::Char('x')), Action::Nothing);
    let control_c = Event::Key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
    assert_eq!(screen.view.handle(&control_c, &screen.model), Action::Stop);
}

#[test]
fn s_changes_the_smoothing() {
    let mut screen = Screen::new(80, 24);
    let curve = |screen: &mut Screen| -> String {
        screen.rows().iter().map(|row| row.chars().take(42).collect::<String>() + "\n").collect()
    };
    let (first, smoothing) = (curve(&mut screen), screen.view.smoothing);
    assert_eq!(smoothing, 0.6);
    screen.key(KeyCode::Char('s'));
    let second = curve(&mut screen);
    assert_contains(&second, &[", EMA 0.9 "]);
    screen.key(KeyCode::Char('s'));
    let raw = curve(&mut screen);
    assert!(!raw.contains("EMA") && raw != first && raw != second, "{raw}");
    screen.key(KeyCode::Char('s'));
    assert_eq!(curve(&mut screen), first);
    // The accuracy has values of passes alone.
    screen.key(KeyCode::Right);
    assert!(!screen.text().contains("EMA"));
}

#[test]
fn the_axis_of_a_loss_begins_at_zero_or_above() {
    let mut screen = Screen::new(80, 24);
    screen.key(KeyCode::Char('s'));
    screen.key(KeyCode::Char('s'));
    let rows = screen.rows();
    let label = |row: &&String| row.starts_with("│0") || row.contains("│0 ") || row.contains(" 0│");
    assert!(rows.iter().any(|row| label(&row)), "{}", rows.join("\n"));
    assert!(!rows.iter().any(|row| row.starts_with("│-")), "{}", rows.join("\n"));
}

#[test]
fn the_log_has_the_height_of_its_messages() {
    let start = Instant::now();
    let mut model = Model::default();
    for messages in 1..=60 {
        let text = format!("message {messages}");
        model.record(&Record::Message { level: Level::Info, text }, start);
        let mut screen = Screen::of(model.clone(), start, 120, 42);
        let text = screen.text();
        assert_eq!(screen.view.places.log.height, (messages + 2).min(10), "{text}");
        assert_contains(&text, &[&format!("message {messages}")]);
    }
}

#[test]
fn a_requested_stop_is_shown() {
    let mut screen = Screen::new(80, 24);
    screen.is_stopping = true;
    assert_contains(&screen.rows()[0], &["stopping after this step"]);
}

#[test]
fn the_mouse_selects_metrics_and_the_wheel_scrolls() {
    let mut screen = Screen::new(80, 40);
    let rows = screen.rows();
    let column = rows[1].find("accuracy").unwrap() as u16;
    screen.mouse(MouseEventKind::Down(MouseButton::Left), column, 1);
    assert_eq!(screen.view.selected, 1);
    // In the table of values, too.
    let row = rows.iter().position(|row| row.contains("loss     0.04")).unwrap();
    screen.mouse(MouseEventKind::Down(MouseButton::Left), 60, row as u16);
    assert_eq!(screen.view.selected, 0);
    screen.mouse(MouseEventKind::ScrollDown, 5, 5);
    assert_eq!(screen.view.selected, 1);
    let log = screen.view.places.log;
    screen.mouse(MouseEventKind::ScrollUp, log.x + 1, log.y + 1);
    assert_eq!((screen.view.selected, screen.view.scroll), (1, 1));
    assert_eq!(screen.mouse(MouseEventKind::Moved, 5, 5), Action::Nothing);
}

#[test]
fn a_resize_leads_to_a_new_frame() {
    let mut screen = Screen::new(80, 24);
    assert_eq!(screen.view.handle(&Event::Resize(200, 60), &screen.model), Action::Changed);
    screen.rows();
    screen.terminal.backend_mut().resize(200, 60);
    assert_contains(&screen.text(), &[" Log ", "in epoch"]);
}

#[test]
fn many_metrics_and_splits_keep_the_selected_one_visible() {
    let mut screen = Screen::new(80, 24);
    for metric in 0..40 {
        for set in ["valid", "other", "third"] {
            let record = ValuesRecord {
                split: Split::Valid(set.into()),
                epoch: 1,
                step: 20,
                complete: true,
                values: vec![(format!("metric-{metric}"), MetricValue::Scalar(f64::from(metric)))],
                text: Default::default(),
            };
            screen.model.record(&Record::Values(record), screen.now);
        }
    }
    screen.rows();
    screen.key(KeyCode::Left);
    let rows = screen.rows();
    assert_contains(&rows[1], &[">metric-39 "]);
    assert_contains(&rows[2..].join("\n"), &[" metric-39 ", "metric-39 -        39", "learning rate"]);
}

#[test]
fn messages_have_levels() {
    let mut screen = Screen::new(80, 40);
    let text = "the gradient is\nnot finite".to_owned();
    screen.model.record(&Record::Message { level: Level::Warning, text }, screen.now);
    assert_contains(&screen.text(), &["25  warning: the gradient is not finite"]);
}

#[test]
fn steps_without_validation_have_curves() {
    let mut screen = Screen::of(Model::default(), Instant::now(), 80, 24);
    for index in 0..9 {
        screen.model.record(&step(index), screen.now);
    }
    assert_contains(&screen.text(), &[" metric train    best", ">loss   0.1111   -"]);
}

#[test]
fn the_summary_has_last_and_best_values() {
    let start = Instant::now();
    let model = model_at_work(start);
    let expected = "\
training of `demo`: ended early, 25 steps in 2.6 s
  metric    split  last     best     best epoch
  loss      train  0.25     0.25     2
  loss      valid  1.6      0.6      1
  accuracy  train  80.00 %  80.00 %  1
  accuracy  valid  75.00 %  75.00 %  2
";
    assert_eq!(summary::table(&model, start + Duration::from_millis(2600)), expected);
    assert_eq!(summary::table(&Model::default(), start), "");
    assert_eq!(model.splits(), [Split::Train, valid()]);
}
