"""The questions as a table: what is asked and given, which frameworks ask it, and the truth where people are told else.

A twin is one small function in `<framework>_twins.py`; adding a framework to a question adds one entry here.
"""

from __future__ import annotations

from wrt._cli.demo.question import Question, Topic


def _twins(name: str, *frameworks: str) -> dict[str, str]:
    return dict.fromkeys(frameworks, name)


ONE_ELEMENT = Topic(
    "One element of a tensor, used to compute something else",
    (
        Question(
            "1.1",
            "How does y change with x[2] alone?",
            "y = 2·x[2] + sum(x)",
            _twins("element_used_twice", "torch", "tensorflow", "jax"),
        ),
        Question(
            "1.2",
            "Does picking an element out need a custom autograd Function?",
            "y = 3·pick(x, 2) + sum(x)",
            _twins("custom_function", "torch"),
            "No. The Function that is usually shown does not even run: save_for_backward takes tensors, and the index"
            " is an int. Kept on ctx it runs, and says what indexing says.",
        ),
        Question(
            "1.3",
            "What is the slope in one element that a vectorized sum hides?",
            "y = sum(x·w), after three earlier calls of backward",
            _twins("hidden_in_a_sum", "torch"),
            "It is w[2], vectorized or not. The value that the usual recipe prints is three times that, because every"
            " backward adds to .grad; a question to wrt neither reads nor writes .grad.",
        ),
        Question(
            "1.4",
            "And an element that another element of the same tensor was computed from?",
            "h is filled in place: h[k] = 0.9·sin(h[k-1]) + x[k]",
            _twins("element_of_the_same_tensor", "torch", "jax"),
            "This is what the title of the question asks, and what its answers leave out.",
        ),
    ),
)

ELEMENT_ZERO = Topic(
    "A gradient for element 0",
    (
        Question(
            "2.1",
            "Is plain indexing differentiable?",
            "y = 2·x[0]",
            _twins("plain_index", "torch", "tensorflow", "jax"),
            "It is: x[0] stays in the graph and the gradient is [2, 0, 0, 0, 0], not None.",
        ),
        Question(
            "2.2",
            "The same by gather?",
            "y = 2·gather(x, 0, [0])",
            _twins("gathered", "torch", "tensorflow", "jax"),
            "The same answer, but not because the index is a tensor: an index never gets a gradient.",
        ),
        Question(
            "2.3",
            "The same by a boolean mask?",
            "y = 2·x[mask]",
            _twins("masked", "torch", "tensorflow", "jax"),
            "The same answer; masked_select copies (it is no view), and the gradient flows through the copy.",
        ),
        Question(
            "2.4",
            "What does “element 0 of tensors does not require grad” mean?",
            "y = 2·x[0], with an x that does not require grad",
            _twins("does_not_require_grad", "torch"),
            "Element 0 there is the first tensor given to backward, not x[0]: nothing that y was made from requires"
            " grad.",
        ),
    ),
)

TAPE = Topic(
    "Elements in TensorFlow",
    (
        Question(
            "3.1",
            "How does the element x[1, 2] change with x?",
            "x is 3 × 3",
            _twins("element_of_itself", "torch", "tensorflow", "jax"),
            "To watch a tensor is to differentiate by it; it does not become a constant. wrt watches for you.",
        ),
        Question(
            "3.2",
            "How does one element of a matrix product change with a factor?",
            "z = x @ w",
            _twins("element_of_a_product", "torch", "tensorflow", "jax"),
        ),
        Question(
            "3.3",
            "How does a total change with every element?",
            "s = sum(x)",
            _twins("total", "torch", "tensorflow", "jax"),
        ),
        Question(
            "3.4",
            "How does one element of a feature map change with one pixel?",
            "m = conv(image), 3 × 3 kernels",
            _twins("pixel_to_feature", "torch", "tensorflow", "jax"),
            "This is the question the recipes set out from, and none of them asks it.",
        ),
    ),
)

INTERMEDIATE = Topic(
    "The gradient of something in between",
    (
        Question(
            "4.1",
            "What is the gradient of a latent vector?",
            "loss = sum(decoder(z)), z = 2·mean(encoder(image))",
            _twins("latent", "torch"),
            "retain_grad() before backward works too; here nothing has to be arranged before or after.",
        ),
        Question(
            "4.2",
            "And of the feature maps inside a network?",
            "loss = cross_entropy(model(image)), maps = relu(conv2(relu(conv1(image))))",
            _twins("feature_maps", "torch"),
        ),
        Question(
            "4.3",
            "Which small change of the input makes hidden unit 10 go up?",
            "hidden = relu(fc2(relu(fc1(x))))",
            _twins("steer", "torch"),
            "A step along the sign of d(hidden)[0, 10] / d(x). To climb the squared distance to a target, as is usually"
            " shown, moves the unit away from that target.",
        ),
    ),
)

ITSELF = Topic(
    "A tensor with respect to itself, and whole Jacobians",
    (
        Question(
            "5.1",
            "What is the derivative of a tensor with respect to itself?",
            "y is 2 × 2",
            _twins("itself", "torch", "tensorflow", "jax"),
            "The identity, of shape (2, 2, 2, 2). A tensor of ones is the gradient of y.sum(): another question.",
        ),
        Question(
            "5.2",
            "And of x² with respect to x?",
            "y = x²",
            _twins("square", "torch", "tensorflow", "jax"),
        ),
        Question(
            "5.3",
            "The Jacobian, without a loop of backwards?",
            "y = tanh(x @ w)·x[0]",
            _twins("jacobian", "torch", "tensorflow", "jax"),
            "The loop is right, one backward for each row. Asked as one question the rows travel together, and any row,"
            " column or block of them can be asked for alone.",
        ),
    ),
)

TOPICS = (ONE_ELEMENT, ELEMENT_ZERO, TAPE, INTERMEDIATE, ITSELF)
