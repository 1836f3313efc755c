"""Checks the event files of tests/loggers_tensorboard.rs as TensorBoard reads them.

    python3 crates/train/tests/event_files.py FOLDER
"""

import io
import math
import sys

from PIL import Image
from tensorboard.backend.event_processing import event_accumulator
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboard.util import tensor_util

folder = sys.argv[1]
unbounded = {name: 0 for name in ("scalars", "images", "histograms", "compressedHistograms", "tensors")}
events = event_accumulator.EventAccumulator(folder, size_guidance=unbounded)
events.Reload()
tags = events.Tags()


def scalars(tag):
    return [(event.step, event.value) for event in events.Scalars(tag)]


# The event of step 3 of the first file, 99.0, is forgotten.
assert scalars("step/loss") == [(1, 4.0), (2, 3.0), (3, 2.0)], scalars("step/loss")
assert scalars("step/learning_rate/adam") == [(1, 0.5), (2, 0.5), (3, 0.5)]
assert scalars("valid/f1/1") == [(2, 0.75)]
[(step, loss)] = scalars("valid/loss")
assert step == 2 and math.isnan(loss)
assert scalars("step/epoch") == [(3, 1.0)] and scalars("step/epoch_seconds") == [(3, 2.0)]

[histogram] = events.Histograms("valid/scores")
value = histogram.histogram_value
assert histogram.step == 2
assert (value.min, value.max, value.num, value.sum, value.sum_squares) == (0.0, 3.0, 7.0, 11.0, 20.5), value
assert list(value.bucket_limit) == [1.0, 3.0] and list(value.bucket) == [2.0, 5.0]

[image] = events.Images("valid/example")
assert (image.height, image.width) == (1, 2)
picture = Image.open(io.BytesIO(image.encoded_image_string))
picture.verify()
picture = Image.open(io.BytesIO(image.encoded_image_string))
assert picture.mode == "RGB" and picture.tobytes() == bytes([255, 0, 0, 0, 128, 255])


def texts(tag):
    assert events.SummaryMetadata(tag).plugin_data.plugin_name == "text"
    arrays = [tensor_util.make_ndarray(event.tensor_proto) for event in events.Tensors(tag)]
    assert all(array.shape == (1,) for array in arrays)
    return [array[0].decode() for array in arrays]


assert texts("valid/note") == ["**bold**"]
assert texts("valid/confusion") == ["| | 0 | 1 |\n|---|---|---|\n| **0** | 3 | 4 |\n"]
assert texts("message/warning") == ["slow"]
assert "<script>" in texts("run/task")[-1] and texts("run/environment")[-1] == "    device: cpu\n"


def hparams(tag):
    plugin_data = events.SummaryMetadata(tag).plugin_data
    assert plugin_data.plugin_name == "hparams"
    return plugin_data_pb2.HParamsPluginData.FromString(plugin_data.content)


start = hparams("_hparams_/session_start_info").session_start_info
assert start.start_time_secs == 1_700_000_000
assert start.hparams["rate"].number_value == 0.5
assert start.hparams["amsgrad"].bool_value is True
assert start.hparams["optimizer"].string_value == "adam"
assert start.hparams["limit"].string_value == "inf"
assert hparams("_hparams_/session_end_info").session_end_info.status == 1
experiment = hparams("_hparams_/experiment").experiment
assert {info.name: info.type for info in experiment.hparam_infos} == {
    "rate": 3,
    "amsgrad": 2,
    "optimizer": 1,
    "limit": 1,
}
assert [info.name.tag for info in experiment.metric_infos] == ["train/accuracy", "train/loss"]
print(f"TensorBoard reads the files: {sum(len(tags[kind]) for kind in ('scalars', 'tensors'))} series")
