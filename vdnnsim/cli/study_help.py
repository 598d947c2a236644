"""What the help of `sweep` and `whatif` says of the files and the keys that they take.

It stands here as text, so that `--help` imports nothing that reads them; a test holds it against what does.
"""

from typing import Final

# Click keeps the lines of a paragraph that begins with \b.
KEYS: Final = """\b
What can be varied:
  workload.network, workload.batch_size, workload.element_type,
  workload.optimizer, workload.mode, hardware, gpus, gradients,
  memory_model, pinned_memory     as in a scenario
  gpu.memory, gpu.granule, gpu.context, gpu.handle,
  host.memory                     as 16 GiB
  link.bandwidth (both ways), link.h2d, link.d2h, host.pin_bandwidth,
  gpu.dram_bandwidth              as 300 GB/s
  link.latency, host.issue, host.pin_latency   as 10 us
  gpu.peak.float32, gpu.peak.float16, gpu.peak.bfloat16   as 60 TFLOP/s
  gpu.multiprocessors, cost_model.NAME   a number, as in a profile
  gpu.compute_speed               a factor: kernels take their time over it
"""

STUDY: Final = """\b
A study:
  schema_version: 1
  scenario: vgg416.yaml       # from this file; or a scenario as a mapping
  axes:                       # the grid; the last one varies fastest
    policy: [vdnn_conv(p), checkpoint, {policy: accumulate, steps: 2}]
    gpu.memory: [12 GiB, 24 GiB]
    link.bandwidth: {from: 16 GB/s, to: 512 GB/s, factor: 2}
                              # or step: 8 GB/s, or count: 5
  where: policy != checkpoint or gpu.memory >= 24 GiB
                              # optional: which points to keep
  pictures:                   # optional: DIR/speed.png, of columns of results
    - name: speed
      title: What a faster link buys
      kind: lines             # or heat_map with value, or pareto
      x: link.bandwidth_bytes_per_s
      y: performance_ratio
      by: policy              # also: panels, where, subtitle, x_label, y_label
      marks: {PCIe gen4: 26 GB/s}
"""
