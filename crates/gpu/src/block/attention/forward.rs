//! The kernel of attention.

use super::super::contraction::zero;
use super::problem::{Problem, Rows, Side};
use super::{Form, THREADS};
use kiln_ir::{Binary, DType, Scalar, Unary};
use kiln_kernel::block::{BlockKernel, Buffer, Builder, Expression, Variable, constant, select};

/// The kernel. Its parameters are `q`, `k`, `v`, the mask if there is one, `y` and the contiguous log-sum-exp; query
/// heads, key heads, queries, keys, the causal offset and the scale; four strides of each of `q`, `k`, `v`, `y` and
/// the mask, if there is one. Query `i` sees key `j` where `j <= i + offset`. Blocks: one for each tile of stacked
/// queries.
pub(crate) fn attention(form: Form) -> BlockKernel {
    let k = Builder::new("attention", THREADS as u32);
    let [q, keys, v] = ["q", "k", "v"].map(|name| k.input(name, form.dtype));
    let mask = form.mask.map(|dtype| k.input("mask", dtype));
    let (y, log_sum_exp) = (k.output("y", form.dtype), k.output("log_sum_exp", form.wide()));
    let problem = Problem::new(&k, form, Side::Queries);
    let q = problem.matrix(&k, q, Side::Queries);
    let [keys, v] = [keys, v].map(|x| problem.matrix(&k, x, Side::Keys));
    let y = problem.matrix(&k, y, Side::Queries);
    let mask = mask.map(|x| problem.matrix(&k, x, Side::Queries));
    let queries = problem.stacked_rows(&k);
    let q = q.rows(&k, &queries, form.dim);
    let of_mask: Vec<Expression> =
        mask.iter().flat_map(|mask| queries.iter().map(|query| mask.start(&k, query))).collect();
    let sums = Sums::new(&k, &problem);
    problem.for_seen_keys(&k, |start| {
        let [loaded, own] = problem.keys_of_tile(&k, &start);
        let scores = problem.products(&k, &q, &keys.rows(&k, &loaded, form.dim));
        let scores: Vec<Expression> = problem
            .pairs()
            .zip(&scores)
            .map(|([row, other], product)| {
                let score = k.var(&hidden(form.wide()));
                let mask = mask.as_ref().map(|mask| (mask, &of_mask[row]));
                problem.when_seen(&k, mask, [&queries[row], &own[other]], product, |seen| {
                    k.set(&score, &seen);
                });
                k.bind(&score.get())
            })
            .collect();
        sums.put_weights(&k, &problem, &scores);
        problem.add_weighted(&k, &v.rows(&k, &loaded, form.dim_v), &sums.columns);
    });
    sums.store(&k, &problem, &y.rows(&k, &queries, form.dim_v), &log_sum_exp);
    k.finish()
}

/// The sums of the thread's rows (online softmax).
struct Sums {
    /// The greatest score of each row.
    greatest: Vec<Variable>,
    /// The sum of this thread's weights of each row.
    weights: Vec<Variable>,
    /// The numerators of the result, as of [`Problem::sums`].
    columns: Vec<Variable>,
}

/// The score of an invisible key.
fn hidden(wide: DType) -> Expression {
    constant(Scalar::Float(f64::NEG_INFINITY), wide)
}

/// The maximum, or 0 if no key is visible: `-inf - -inf` would be NaN.
fn finite(greatest: &Expression, wide: DType) -> Expression {
    select(&greatest.eq(&hidden(wide)), &zero(wide), greatest)
}

impl Sums {
    fn new(k: &Builder, problem: &Problem) -> Sums {
        let (tall, wide) = (problem.form.tile.tall, problem.form.wide());
        let of_rows = |value: Expression| (0..tall).map(|_| k.var(&value)).collect();
        Sums {
            greatest: of_rows(hidden(wide)),
            weights: of_rows(zero(wide)),
            columns: problem.sums(k, problem.form.dim_v),
        }
    }

    /// Puts the weights of a tile, relative to the greatest score so far, and corrects the sums where a score of the
    /// tile is greater. All threads of the block must call it.
    fn put_weights(&self, k: &Builder, problem: &Problem, scores: &[Expression]) {
        let (others, wide) = (problem.form.tile.wide, problem.form.wide());
        let greatest: Vec<Expression> = scores
            .chunks(others)
            .map(|row| {
                let (first, rest) = (row[0].clone(), &row[1..]);
                k.bind(&rest.iter().fold(first, |greatest, score| greatest.max(score)))
            })
            .collect();
        let greatest = problem.combined(k, &greatest, Binary::Max);
        let per_row = self.columns.len() / self.greatest.len();
        for (row, greatest) in greatest.iter().enumerate() {
            let before = k.bind(&self.greatest[row].get());
            k.update(&self.greatest[row], Binary::Max, greatest);
            let finite = k.bind(&finite(&self.greatest[row].get(), wide));
            let factor = k.bind(&(before - &finite).unary(Unary::Exp));
            for sum in self.columns[row * per_row..][..per_row].iter().chain([&self.weights[row]]) {
                k.update(sum, Binary::Mul, &factor);
            }
            for other in 0..others {
                let weight = k.bind(&(&scores[row * others + other] - &finite).unary(Unary::Exp));
                k.update(&self.weights[row], Binary::Add, &weight);
                problem.put_weight(k, [row, other], &weight);
            }
        }
    }

    /// Stores the thread's columns of the result, and the log-sum-exps.
    fn store(&self, k: &Builder, problem: &Problem, y: &Rows<'_>, log_sum_exp: &Buffer) {
        let wide = problem.form.wide();
        let weights: Vec<Expression> = self.weights.iter().map(Variable::get).collect();
        let totals = problem.combined(k, &weights, Binary::Add);
        // The numerators of a row without visible keys are 0.
        let one = constant(Scalar::Float(1.0), wide);
        let divisor = |total: &Expression| k.bind(&select(&total.eq(&zero(wide)), &one, total));
        let divisors: Vec<Expression> = totals.iter().map(divisor).collect();
        problem.store(k, y, &self.columns, |row, sum| sum / &divisors[row]);
        for (row, total) in totals.iter().enumerate() {
            let place = k.bind(&problem.stacked_place(row));
            let is_inside = place.lt(&problem.stacked);
            k.when(&problem.is_first_lane(&is_inside), || {
                let log = total.unary(Unary::Ln) + &finite(&self.greatest[row].get(), wide);
                k.store(log_sum_exp, &(&problem.head * &problem.stacked + &place), &log);
            });
        }
    }
}
