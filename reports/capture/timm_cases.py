"""Image models of timm, of 64 pixels a side or of their own size."""

from collections.abc import Iterator
from functools import partial

import timm

from reports.capture.case import Case, images

_ANY_SIDE = (
    "convnext_atto convnextv2_atto efficientvit_b0 mobilevit_xxs mobilevitv2_050 mobilenetv4_conv_small "
    "tf_efficientnet_lite0 edgenext_xx_small fastvit_t8 poolformer_s12 repvgg_a0 resnest14d rexnet_100 hrnet_w18_small "
    "dla34 dpn48b ghostnet_100 lcnet_050 hardcorenas_a resnet26t skresnet18 selecsls42 tinynet_a pvt_v2_b0 "
    "ese_vovnet19b_dw inception_next_atto starnet_s1 mambaout_femto tf_mixnet_s resnetv2_50 nf_regnet_b0 "
    "legacy_seresnet18 eca_resnet33ts gcresnext26ts focalnet_tiny_srf cspresnet50 mixnet_s repghostnet_050"
)
_SET_SIDE = "vit_tiny_patch16_224 deit_tiny_patch16_224 cait_xxs24_224 swinv2_cr_tiny_224 mixer_s32_224 gmlp_ti16_224"
_OWN_SIDE = (
    "levit_128s efficientformer_l1 coat_lite_tiny pit_ti_224 xcit_nano_12_p16_224 visformer_tiny twins_svt_small "
    "davit_tiny eva02_tiny_patch14_224 hiera_tiny_224 coatnet_pico_rw_224 resmlp_12_224 sequencer2d_s volo_d1_224 "
    "halonet26t lambda_resnet26t crossvit_tiny_240 botnet26t_256"
)


def cases() -> Iterator[Case]:
    for name in _ANY_SIDE.split():
        yield Case(name, "timm", partial(timm.create_model, name), images(64))
    for name in _SET_SIDE.split():
        yield Case(name, "timm", partial(timm.create_model, name, img_size=64), images(64))
    for name in _OWN_SIDE.split():
        side = timm.get_pretrained_cfg(name).input_size[-1] if timm.is_model_pretrained(name) else 224
        made = partial(timm.create_model, name)
        yield Case(name, "timm", made, images(side), onednn=name != "sequencer2d_s")
