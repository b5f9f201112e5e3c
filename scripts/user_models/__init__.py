"""Models as ordinary users write them, with random weights: what predictions are judged by beside library models.

Every builder is a callable without needed arguments, `costmodel predict scripts/user_models/detection.py:yolo_like`;
it takes a batch size.
"""

from __future__ import annotations

MODELS: dict[str, dict[str, int]] = {
    "segmentation": {
        "unet": 16, "unet_bilinear": 16, "attention_unet": 16, "deeplab_like": 16, "pyramid_pooling": 32,
    },
    "detection": {
        "yolo_like": 32, "siamese": 32, "fcos_like": 16, "retina_like": 16, "keypoints": 32, "ssd_like": 16,
        "face_mesh": 32,
    },
    "transformers": {
        "window_net": 32, "register_vit": 32, "hybrid": 32, "mixer": 32, "register_vit_bfloat16": 32,
        "rotary_vit": 32, "set_decoder": 32, "token_mlp_bfloat16": 32,
    },
    "video": {
        "conv_lstm": 32, "c3d": 16, "crnn": 32, "r2plus1d": 16, "slow_fast": 16, "frame_gru": 32, "cell_loop": 32,
    },
    "restoration": {"espcn": 16, "fourier_operator": 16, "edsr": 16, "fft_denoiser": 16},
    "geometry": {"spatial_transformer": 32, "flow_net": 8, "stereo": 8, "nerf": 16, "point_net": 32, "big_warp": 16},
    "generation": {
        "diffusion_unet": 32, "dcgan_generator": 32, "vae": 32, "dcgan_discriminator": 32, "autoencoder": 32,
        "transposed_stack": 32,
    },
    "classifiers": {
        "large_kernel": 32, "group_norm_resnet": 32, "shuffle_mobile": 32, "senet": 32, "weight_norm_net": 32,
        "own_deformable": 16, "senet_float16": 32, "two_backbones": 32, "library_deformable": 16,
    },
    "python_in_forward": {
        "prints": 32, "logs": 32, "excluded": 32, "stopwatch": 32, "numpy_window": 32, "copies_config": 32,
    },
    "data_dependent": {
        "early_exit": 32, "reads_scale": 32, "validates": 32, "ragged_attention": 16, "selects": 8,
        "shape_tensor": 32,
    },
    "stateful": {
        "normalises_in_place": 32, "cpu_table": 32, "running_mean": 32, "caches_grid": 32, "training_mode": 32,
        "hooks": 32,
    },
    "extensions": {
        "mixed_inside": 32, "checkpointed": 32, "scripted": 32, "straight_through": 32, "custom_operator": 32,
    },
}  # fmt: skip
"""File -> builder -> the larger batch that it is measured with, beside 1."""
