"""Saliency as people know it: each a line on top of the notation, for any element of any named value.

    from wrt import saliency
    saliency.gradient(model, x, of=(0, 3))
    saliency.integrated_gradients(model, x, of=(slice(None), 3))      every sample of a batch
    saliency.grad_cam(model, x, of=(0, 3), layer="layer4")
"""

from wrt._study.attribution import grad_cam, gradient, gradient_times_input, integrated_gradients, smooth_grad

__all__ = ["grad_cam", "gradient", "gradient_times_input", "integrated_gradients", "smooth_grad"]
