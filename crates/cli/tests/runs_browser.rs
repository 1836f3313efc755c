//! The script of `kiln runs report` in headless Chromium.

use std::fs;
use std::process::Command;

use crate::runs::{HOSTILE, kiln_runs, write};

/// Uses the page as a person does and writes the results as its text.
const ACTIONS: &str = r##"<script type="module">
const results = [];
const check = (name, condition) => results.push(`${name}: ${condition ? "yes" : "no"}`);
const chart = [...document.querySelectorAll(".chart")].find((chart) => chart.querySelector("h3").textContent === "loss");
const view = chart.querySelector("svg"), box = view.getBoundingClientRect();
const at = (name, part) => view.dispatchEvent(new PointerEvent(name, { clientX: box.left + part * box.width, clientY: box.top + box.height / 2, button: 0, bubbles: true }));
const curves = () => [...view.querySelectorAll("path.curve")].map((path) => path.getAttribute("d"));
const first = curves();
check("curves", first.length === 6 && first.every((path) => path.startsWith("M") && !path.includes("NaN")));
check("odd", view.querySelectorAll("path.odd").length === 4);
at("pointermove", 0.5);
const tip = chart.querySelector(".tip");
check("hover", !tip.hidden && /step 1\d/.test(tip.textContent) && tip.textContent.includes("step loss"));
at("pointerdown", 0.3); at("pointermove", 0.6); at("pointerup", 0.6);
check("zoom", curves()[1] !== first[1] && !chart.querySelector(".reset").hidden);
view.dispatchEvent(new MouseEvent("dblclick"));
check("reset", curves()[1] === first[1] && chart.querySelector(".reset").hidden);
const box1 = chart.querySelector(".legend input");
box1.click();
check("toggle", curves().length === 5);
box1.click();
const set = (id, change) => { const input = document.getElementById(id); change(input); input.dispatchEvent(new Event("input")); };
set("log", (input) => { input.checked = true; });
check("log", curves()[1] !== first[1] && !curves().join().includes("NaN"));
set("log", (input) => { input.checked = false; });
set("smoothing", (input) => { input.value = "0.9"; });
check("smoothing", curves().length === 12 && view.querySelectorAll(".raw").length === 6);
const pictures = [...document.querySelectorAll("svg.image image")];
// The policy of the page must allow the image, and its pixels must be those of the record.
const picture = new Image();
picture.src = pictures[0].getAttribute("href");
await picture.decode();
const context = document.createElement("canvas").getContext("2d");
context.drawImage(picture, 0, 0);
const pixels = [...context.getImageData(0, 0, 2, 1).data];
check("image", pictures.length === 4 && picture.width === 2 && pixels.join() === "255,0,0,255,0,128,255,255");
check("size", pictures[0].getBoundingClientRect().width === 280);
check("histogram", [...document.querySelectorAll(".histogram rect")].every((bar) => bar.getBoundingClientRect().width > 100));
document.getElementById("theme").click();
check("theme", ["dark", "light"].includes(document.documentElement.dataset.theme));
check("text", document.querySelectorAll("img").length === 0 && document.title.includes("<script>alert(0)<"));
check("charts", document.querySelectorAll(".chart svg").length === document.querySelectorAll(".chart").length);
document.body.replaceChildren(Object.assign(document.createElement("pre"), { textContent: results.join("\n") }));
</script>"##;

/// `cargo xtask test` runs this as the step `browser` where Chromium is installed.
#[test]
#[ignore = "the step `browser` runs it, where Chromium is installed"]
fn curves_work_in_a_browser() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "<script>alert(0)<", 1.0, HOSTILE);
    write(root.path(), "plain", 0.5, HOSTILE);
    let page = root.path().join("report.html");
    let (root_path, page_path) = (root.path().to_str().unwrap(), page.to_str().unwrap());
    let words = ["report", "<script>alert(0)<", "plain", "-o", page_path, "--root", root_path];
    assert!(kiln_runs(&words).0);
    let html = fs::read_to_string(&page).unwrap().replace("</body>", &format!("{ACTIONS}</body>"));
    fs::write(&page, html).unwrap();
    let profile = format!("--user-data-dir={}", root.path().join("profile").display());
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1200,900", &profile])
        .args(["--virtual-time-budget=5000", "--dump-dom"])
        .arg(format!("file://{page_path}"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let results =
        text.split_once("<pre>").and_then(|(_, rest)| rest.split_once("</pre>")).map(|(results, _)| results);
    let results = results.unwrap_or_else(|| panic!("the script failed: {text}"));
    assert_eq!(results.lines().count(), 14, "{results}");
    assert!(results.lines().all(|line| line.ends_with(": yes")), "{results}");
}
